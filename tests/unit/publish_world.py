"""A lake in memory and processes that write to it, whose clock stands still unless a test moves it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from headwater.catalog.embedded.open import init_embedded, open_embedded
from headwater.catalog.model import Commit, Content, TableContent, TableKey
from headwater.kernel.clock import ManualClock
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import seeded
from headwater.publish.heads import HOME
from headwater.publish.model import TableWish, Wish, WriterKind
from headwater.publish.service import Writing, open_writing
from headwater.storage.memory import MemoryStore
from headwater.storage.port import ObjectStore
from headwater.tables.create import new_table
from headwater.tables.files import Files
from headwater.tables.metadata import decode_metadata
from headwater.tables.model import Staged, TableVersion
from headwater.tables.operations import append
from headwater.tables.read import read_task
from headwater.tables.scan import plan_scan

LAKE = "s3://bucket/lake"
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "v", StringType()))
LEASE, SKEW = timedelta(seconds=60), timedelta(seconds=10)
OVER = LEASE + SKEW + timedelta(seconds=1)


class PublishWorld:
    """A store with a lake on it."""

    def __init__(self, store: ObjectStore | None = None, seed: int = 1) -> None:
        self.clock = ManualClock()
        self.randomness = seeded(seed)
        self.store = store or MemoryStore(self.clock)
        init_embedded(self.store, clock=self.clock, randomness=self.randomness, workers=1)

    def process(self, store: ObjectStore | None = None) -> Process:
        return Process(self, store or self.store)


class Process:
    """A process that has the lake open for writing."""

    def __init__(self, world: PublishWorld, store: ObjectStore) -> None:
        self.world = world
        self.catalog = open_embedded(store, clock=world.clock, randomness=world.randomness, workers=1)
        self.files = Files({LAKE: store})
        self.writing: Writing = open_writing(
            self.catalog,
            self.files,
            store,
            location=LAKE,
            clock=world.clock,
            randomness=world.randomness,
            lease=LEASE,
            skew=SKEW,
        )

    def create(self, *names: str, branch: str = "main") -> Commit:
        """New tables, with one row each."""
        ref = self.catalog.ref(branch)
        staging = self.writing.staging()
        wishes = []
        for name in names:
            incarnation = new_ulid(self.world.clock, self.world.randomness)
            metadata = new_table(
                SCHEMA,
                location=f"{LAKE}/tables/{name}-{incarnation}",
                incarnation=incarnation,
                operation=staging.operation,
                clock=self.world.clock,
                randomness=self.world.randomness,
            )
            metadata = metadata.model_copy(update={"properties": {**metadata.properties, HOME: ref.incarnation}})
            staged = append(staging, TableVersion(metadata), rows(0, "made"))
            wishes.append(TableWish(TableKey.parse(name), None, staged))
        return self.publish(wishes, branch=branch, operation=staging.operation)

    def wish(
        self, changes: Mapping[str, int], *, reads: tuple[str, ...] = (), branch: str = "main", v: str = "x"
    ) -> Wish:
        """Append one row to each table."""
        staging = self.writing.staging()
        tables = []
        for name, number in changes.items():
            pinned = self.pinned(name, branch=branch)
            assert isinstance(pinned, TableContent)
            base = self.version(pinned)
            tables.append(TableWish(TableKey.parse(name), pinned, append(staging, base, rows(number, v))))
        return self._wish(
            tables, branch, staging.operation, {TableKey.parse(each): self.pinned(each) for each in reads}
        )

    def append(self, changes: Mapping[str, int], **options: object) -> Commit:
        return self.writing.publisher.publish(self.wish(changes, **options))  # type: ignore[arg-type]

    def publish(self, tables: list[TableWish], *, branch: str, operation: str) -> Commit:
        return self.writing.publisher.publish(self._wish(tables, branch, operation, {}))

    def _wish(
        self, tables: list[TableWish], branch: str, operation: str, reads: Mapping[TableKey, Content | None]
    ) -> Wish:
        ref = self.catalog.ref(branch)
        return Wish(
            WriterKind.TRANSACTION,
            "ann",
            "a change",
            branch,
            ref.incarnation,
            operation,  # type: ignore[arg-type]
            tuple(tables),
            reads,
        )

    def pinned(self, name: str, *, branch: str = "main") -> Content | None:
        key = TableKey.parse(name)
        return self.catalog.content(self.catalog.ref(branch).hash, [key]).get(key)

    def version(self, content: TableContent) -> TableVersion:
        location = content.metadata_location
        return TableVersion(decode_metadata(self.files.read(location), location), location)

    def ids(self, name: str, *, branch: str = "main") -> list[int]:
        """The ids in a table, as a reader of the branch sees it."""
        content = self.pinned(name, branch=branch)
        assert isinstance(content, TableContent), content
        plan = plan_scan(self.files, self.version(content).metadata)
        return sorted(
            number
            for task in plan.tasks
            for batch in read_task(self.files, task, plan=plan)
            for number in batch.column("id").to_pylist()
        )

    def head_is_pinned(self, name: str, *, branch: str = "main") -> bool:
        """Whether the newest object of the table's own sequence is what the branch pins."""
        content = self.pinned(name, branch=branch)
        assert isinstance(content, TableContent)
        metadata = self.version(content).metadata
        path = self.writing.heads.path_for(metadata, self.catalog.ref(branch).incarnation)
        latest = self.writing.heads.sequence(path).latest()
        return latest is not None and latest.id == self.writing.heads.id_in(path, content)

    def sidecars(self) -> int:
        return len(self.writing.sidecars.pending())

    def actors(self) -> list[str]:
        return [commit.actor for commit in self.catalog.log(self.catalog.ref("main").hash)]


def rows(number: int, v: str) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "v": [v]})


__all__ = ["LAKE", "LEASE", "OVER", "SKEW", "Process", "PublishWorld", "Staged", "rows"]
