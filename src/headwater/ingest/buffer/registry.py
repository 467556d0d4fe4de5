"""Which files are admitted, and what the node alone knows of them.

An entry is made right after a file has become REGULAR and taken away right after it has become RETIRED. It never leaves
the process: a checkpoint carries it to the next one.
"""

from __future__ import annotations

import threading
from bisect import insort
from collections.abc import Iterable

import numpy as np

from headwater.ingest.buffer.model import AdmittedFile
from headwater.ingest.model import Int64s, Stream
from headwater.kernel.errors import HeadwaterError

_NO_IDS = np.empty(0, dtype=np.int64)


class RegistryError(HeadwaterError):
    """The registry and the files do not agree: the node stops rather than answer from either."""


class FileRegistry:
    """Files by id, and by stream in the order of their first blocks. Safe to share among threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[int, AdmittedFile] = {}
        self._by_stream: dict[Stream, list[AdmittedFile]] = {}
        # The same as a column: each request asks for many of them, and there may be thousands.
        self._ids_by_stream: dict[Stream, Int64s] = {}

    def register(self, file: AdmittedFile) -> None:
        """Admit a file that is REGULAR now."""
        with self._lock:
            if file.file_id in self._by_id:
                raise RegistryError(f"file {file.file_id} is registered already", file_id=file.file_id)
            others = self._by_stream.setdefault(file.stream, [])
            if any(each.first_block_id == file.first_block_id for each in others):
                raise RegistryError(
                    f"stream {file.stream} has two files that begin with block {file.first_block_id}",
                    file_id=file.file_id,
                )
            self._by_id[file.file_id] = file
            insort(others, file, key=lambda each: each.first_block_id)
            self._note_ids(file.stream)

    def unregister(self, file_id: int) -> None:
        """Forget a file that is RETIRED now."""
        with self._lock:
            file = self._by_id.pop(file_id, None)
            if file is None:
                raise RegistryError(f"file {file_id} is not registered", file_id=file_id)
            self._by_stream[file.stream].remove(file)
            self._note_ids(file.stream)

    def get(self, file_id: int) -> AdmittedFile:
        """What is known of a file; one that is not there is an error."""
        file = self._by_id.get(file_id)
        if file is None:
            raise RegistryError(f"file {file_id} is not registered", file_id=file_id)
        return file

    def has(self, file_id: int) -> bool:
        """Whether the file is admitted."""
        return file_id in self._by_id

    def of(self, stream: Stream) -> tuple[AdmittedFile, ...]:
        """The files of a stream, in the order of their first blocks."""
        with self._lock:
            return tuple(self._by_stream.get(stream, ()))

    def ids_of(self, stream: Stream) -> Int64s:
        """The ids of a stream's files; the column does not change any more."""
        return self._ids_by_stream.get(stream, _NO_IDS)

    def _note_ids(self, stream: Stream) -> None:
        self._ids_by_stream[stream] = np.array([each.file_id for each in self._by_stream[stream]], dtype=np.int64)

    def refuse_strangers(self, file_ids: Iterable[int]) -> None:
        """Every file that has visibility is admitted, or the node has lost its way."""
        if strangers := sorted(each for each in file_ids if not self.has(each)):
            raise RegistryError(
                f"files {strangers} have visibility and are not registered",
                hint="the node stops: the order of publishing or retiring was broken",
                file_ids=strangers,
            )
