"""A lake on disk, its tables' rows in a plain dictionary beside it, and places at which somebody else cuts in."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from headwater.app import App
from headwater.kernel import settings
from headwater.kernel.clock import ManualClock
from headwater.kernel.failpoints import Failpoint
from headwater.lake import Lake
from headwater.publish import protocol as publish_protocol
from headwater.publish.optimize import protocol as optimize_protocol
from headwater.tables.model import ROW_ID_COLUMN, UPDATED_COLUMN, FileTask
from headwater.tables.read import read_task
from headwater.tables.scan import plan_scan

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("p", pa.int32())])


class OptimizeWorld:
    """One lake, two processes, and what its table `t` should hold: {id: (v, p)}."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.url = str(folder / "a lake")
        self.app = App(settings.load(environ={}), clock=self.clock)
        self.lake: Lake = self.app.init_lake(self.url)
        self.other: Lake = self.process()
        self.model: dict[int, tuple[str, int]] = {}

    def process(self) -> Lake:
        """Another process that has the lake open."""
        return App(settings.load(environ={}), clock=self.clock).open_lake(self.url)

    def create(self, name: str = "t", **options: Any) -> None:
        self.lake.create_table(name, SCHEMA, actor="ann", **options)

    def insert(self, *ids: int, v: str = "x", p: int = 0, name: str = "t", lake: Lake | None = None) -> None:
        rows = pa.table({"id": ids, "v": [v] * len(ids), "p": [p] * len(ids)}, schema=SCHEMA)
        with (lake or self.lake).transaction(actor="ann") as transaction:
            transaction.insert(name, rows)
        if name == "t":
            self.model |= dict.fromkeys(ids, (v, p))

    def insert_parts(self, *parts: tuple[int, ...]) -> None:
        """One transaction: the first ids go to partition 0, the next to partition 1, and so on."""
        ids = [each for part in parts for each in part]
        places = [place for place, part in enumerate(parts) for _ in part]
        with self.lake.transaction(actor="ann") as transaction:
            transaction.insert("t", pa.table({"id": ids, "v": ["x"] * len(ids), "p": places}, schema=SCHEMA))
        self.model |= {each: ("x", place) for each, place in zip(ids, places, strict=True)}

    def delete(self, *ids: int, lake: Lake | None = None) -> None:
        with (lake or self.lake).transaction(actor="ann") as transaction:
            transaction.sql(f"delete from t where id in ({', '.join(map(str, ids))})")
        for each in ids:
            self.model.pop(each, None)

    def update(self, v: str, *ids: int, lake: Lake | None = None) -> None:
        with (lake or self.lake).transaction(actor="ann") as transaction:
            transaction.sql(f"update t set v = '{v}' where id in ({', '.join(map(str, ids))})")
        self.model |= {each: (v, self.model[each][1]) for each in ids if each in self.model}

    def rows(self, *, branch: str = "main") -> dict[int, tuple[str, int]]:
        """What PyIceberg reads from the version that the branch pins; each row must be there once."""
        location = self.lake.table("t", branch=branch).location
        assert location is not None
        table = StaticTable.from_metadata(location).scan().to_arrow()
        assert len(set(table["id"].to_pylist())) == table.num_rows
        return {row["id"]: (row["v"], row["p"]) for row in table.to_pylist()}

    def lineage(self) -> dict[int, tuple[int, int]]:
        """The id and the last update of each row (v3)."""
        version = self.process().table("t")
        plan = plan_scan(self.lake.files, version.metadata)
        extra = frozenset({ROW_ID_COLUMN, UPDATED_COLUMN})
        found = [
            row
            for task in plan.tasks
            for batch in read_task(self.lake.files, task, plan=plan, columns=("id",), extra=extra)
            for row in batch.to_pylist()
        ]
        return {row["id"]: (row[ROW_ID_COLUMN], row[UPDATED_COLUMN]) for row in found}

    def tasks(self, name: str = "t", *, branch: str = "main") -> tuple[FileTask, ...]:
        return plan_scan(self.lake.files, self.lake.table(name, branch=branch).metadata).tasks

    def commits(self, *, branch: str = "main") -> list[str]:
        """Messages, newest first."""
        return [commit.message for commit in self.lake.catalog.log(self.lake.catalog.ref(branch).hash)]

    def objects(self) -> set[str]:
        """Everything that is stored, but the pins of those who look."""
        return {meta.path for meta in self.lake.writing.store.list("") if "/gc/" not in meta.path}


@contextmanager
def cutting_in(point: Failpoint, *steps: Callable[[], object]) -> Iterator[list[int]]:
    """Somebody else does something when a writer passes this point: one step each time. Says how often it passed."""
    passed: list[int] = []
    pending = list(steps)

    is_other = False

    def hit(here: Failpoint) -> None:
        nonlocal is_other
        if here is not point or is_other:
            return
        passed.append(len(passed))
        if pending:
            is_other = True  # its own publish passes here too
            try:
                pending.pop(0)()
            finally:
                is_other = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimize_protocol, "hit", hit)
        if point.startswith("publish."):
            patch.setattr(publish_protocol, "hit", hit)
        yield passed


@contextmanager
def world_of(**options: Any) -> Iterator[OptimizeWorld]:
    """A world of its own, for tests that need many."""
    with tempfile.TemporaryDirectory() as folder:
        world = OptimizeWorld(Path(folder))
        world.create(**options)
        yield world
