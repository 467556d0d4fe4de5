"""What is there, by asking for each object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from headwater.storage.errors import ObjectNotFoundError
from headwater.sync.plan.model import Found
from headwater.tables.files import Files


class HeadPresence:
    """One HEAD for each file, several side by side."""

    def __init__(self, files: Files, *, workers: int) -> None:
        self._files = files
        self._workers = workers

    def look(self, uris: Sequence[str]) -> Mapping[str, Found]:
        """Those of the URIs that are there."""
        with ThreadPoolExecutor(max(1, min(self._workers, len(uris))), thread_name_prefix="presence") as pool:
            found = pool.map(self._head, uris)
            return {uri: each for uri, each in zip(uris, found, strict=True) if each is not None}

    def _head(self, uri: str) -> Found | None:
        store, path = self._files.place(uri)
        try:
            return Found(store.head(path).size_bytes)
        except ObjectNotFoundError:
            return None
