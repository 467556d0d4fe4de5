"""The tables' own heads: each table of an embedded lake is a sequenced namespace of its metadata files."""

from __future__ import annotations

import threading

from headwater.sequence.history import History
from headwater.sequence.model import Namespace
from headwater.sequence.protocol import Sequencer
from headwater.tables.head import MetadataCodec, head_namespace


class EmbeddedHeads:
    """One sequencer for each table: when its boundary is lost, nobody in the process writes on."""

    def __init__(self, history: History) -> None:
        self._lake = history
        self._heads: dict[str, Sequencer] = {}
        self._lock = threading.Lock()

    def head(self, location_path: str) -> Sequencer:
        """The history of the metadata of the table at this path in the lake."""
        with self._lock:
            found = self._heads.get(location_path)
            if found is None:
                namespace = head_namespace(location_path)
                # However the path is spelled, it is the same sequencer.
                found = self._heads.get(namespace.root) or self._made(namespace)
                self._heads[location_path] = self._heads[namespace.root] = found
            return found

    def _made(self, namespace: Namespace) -> Sequencer:
        return Sequencer(
            self._lake.store,
            namespace,
            clock=self._lake.clock,
            randomness=self._lake.randomness,
            metrics=self._lake.metrics,
            codec=MetadataCodec(),
            policy=self._lake.retry.policy,
        )
