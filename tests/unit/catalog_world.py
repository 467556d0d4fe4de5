"""One lake in memory, one clock, many processes: the stage for interleavings of the embedded catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

from headwater.catalog.embedded.model import MANIFEST, OBJECTS
from headwater.catalog.embedded.open import init_embedded, open_embedded
from headwater.catalog.embedded.protocol import EmbeddedCatalog
from headwater.catalog.model import (
    Change,
    Commit,
    CommitRequest,
    Content,
    Delete,
    Put,
    TableContent,
    TableKey,
)
from headwater.kernel.clock import ManualClock
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.randomness import seeded
from headwater.kernel.retry import RetryPolicy
from headwater.sequence.collect import Collector
from headwater.sequence.model import Retention
from headwater.sequence.protocol import Sequencer
from headwater.storage.memory import MemoryStore
from headwater.storage.port import ObjectStore
from tests.unit.hooks import HookedStore

T, U, V = (TableKey(("default",), name) for name in "tuv")


class World:
    """A fresh lake, and as many independent processes as a test opens."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(self.clock)
        self.store = HookedStore(self.memory)
        self.randomness = seeded(7)
        init_embedded(self.memory, clock=self.clock, randomness=self.randomness, workers=1)

    def open(self, store: ObjectStore | None = None, **more: object) -> EmbeddedCatalog:
        return open_embedded(
            store or self.store,
            clock=self.clock,
            randomness=self.randomness,
            policy=RetryPolicy(attempts=8),
            workers=1,
            **more,  # type: ignore[arg-type]
        )

    def other(self) -> EmbeddedCatalog:
        """A process whose requests run no hooks."""
        return self.open(self.memory)

    def fresh(self) -> Ulid:
        return new_ulid(self.clock, self.randomness)

    def table(self, version: int = 1) -> TableContent:
        return TableContent(self.fresh(), f"t/metadata/{version}-{self.fresh()}.json", version, 0, 0, 0)

    def request(
        self,
        contents: Mapping[TableKey, Content | None],
        branch: str = "main",
        on: EmbeddedCatalog | None = None,
    ) -> CommitRequest:
        """A request on the present head; None deletes."""
        catalog = on or self.other()
        head = catalog.ref(branch).hash
        present = catalog.content(head, list(contents))
        changes: dict[TableKey, Change] = {}
        for key, content in contents.items():
            before = present.get(key)
            if content is None:
                changes[key] = Delete()
            else:
                changes[key] = Put(replace(content, content_id=before.content_id) if before else content)
        return CommitRequest(
            branch=branch,
            head=head,
            changes=changes,
            expected={key: present.get(key) for key in contents},
            actor="tester",
            message="a change",
            operation=self.fresh(),
        )

    def put(self, contents: Mapping[TableKey, Content | None] | None = None, branch: str = "main") -> Commit:
        """Another process commits; a second passes."""
        self.clock.advance(timedelta(seconds=1))
        catalog = self.other()
        return catalog.commit(self.request({T: self.table()} if contents is None else contents, branch, catalog))

    def objects(self) -> set[str]:
        return {meta.path for meta in self.memory.list(OBJECTS)}

    def manifests(self) -> list[str]:
        return [meta.path for meta in self.memory.list(MANIFEST.folder)]

    def sequencer(self) -> Sequencer:
        return Sequencer(self.memory, MANIFEST, clock=self.clock, randomness=self.randomness)

    def collect_manifests(self) -> None:
        """Everything but the latest manifest, and what is pinned, goes."""
        self.clock.advance(timedelta(seconds=1))
        Collector(self.sequencer(), Retention(timedelta(0), timedelta(0))).collect()


class Snapshot:
    """All bytes of the store, to show that nothing changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._before = self._look()

    def _look(self) -> dict[str, str | None]:
        return {meta.path: meta.etag for meta in self._world.memory.list()}

    def unchanged(self) -> bool:
        return self._look() == self._before


def once(action: Callable[[], object]) -> Callable[[], None]:
    """For hooks, which want nothing back."""

    def act() -> None:
        action()

    return act
