"""What a commit costs in a lake of many tables, against one of few: it must cost what it touches."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from bench.measure import Result, compare_rates
from headwater.catalog.embedded.open import init_embedded, open_embedded
from headwater.catalog.model import Change, CommitRequest, Put, TableContent, TableKey
from headwater.kernel.clock import SystemClock
from headwater.kernel.ids import new_ulid
from headwater.kernel.metrics import Metrics
from headwater.kernel.randomness import system_randomness
from headwater.storage.file import FileStore
from headwater.storage.metered import API_CALLS, MeteredStore

MANY, FEW = 10_000, 10
CLOCK, RANDOMNESS = SystemClock(), system_randomness()


class Committer:
    """Changes one table again and again, in a lake of so many tables; `requests` counts what that costs."""

    def __init__(self, folder: Path, tables: int) -> None:
        self.metrics = Metrics()
        store = MeteredStore(FileStore(folder, CLOCK, RANDOMNESS), self.metrics, "bench")
        init_embedded(store, clock=CLOCK, randomness=RANDOMNESS)
        self.catalog = open_embedded(store, clock=CLOCK, randomness=RANDOMNESS)
        self.head = self.catalog.ref("main").hash
        everything = {TableKey(("default",), f"table_{number:05d}"): self._content() for number in range(tables)}
        self._commit({key: Put(content) for key, content in everything.items()}, new=True)
        self.key, self.content = list(everything.items())[3]

    def commit(self) -> None:
        """A new version of one table, by a writer that knows what it committed last."""
        new = replace(self.content, metadata_location=self._location(), snapshot_id=(self.content.snapshot_id or 0) + 1)
        self._commit({self.key: Put(new)})
        self.content = new

    def requests(self) -> float:
        """How many requests one commit makes."""
        before = self._count()
        self.commit()
        return self._count() - before

    def _commit(self, changes: dict[TableKey, Change], *, new: bool = False) -> None:
        request = CommitRequest(
            branch="main",
            head=self.head,
            changes=changes,
            expected=dict.fromkeys(changes, None if new else self.content),
            actor="bench",
            message="a change",
            operation=new_ulid(CLOCK, RANDOMNESS),
        )
        self.head = self.catalog.commit(request).hash

    def _content(self) -> TableContent:
        return TableContent(new_ulid(CLOCK, RANDOMNESS), self._location(), 1, 0, 0, 0)

    def _location(self) -> str:
        return f"s3://warehouse/lake/default/table/metadata/{new_ulid(CLOCK, RANDOMNESS)}.metadata.json"

    def _count(self) -> float:
        return sum(self.metrics.value(API_CALLS, region="bench", op=op) for op in ("get", "head", "put", "list"))


def tables_on_file() -> list[Result]:
    """At most 1.3 times the time, and the very same requests."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        many, few = Committer(Path(folder) / "many", MANY), Committer(Path(folder) / "few", FEW)
        needed, usual = many.requests(), few.requests()
        return [
            compare_rates("catalog-tables-file", many.commit, few.commit, count=60, rounds=7, goal=1 / 1.3),
            Result("catalog-tables-file-requests", needed, usual, "requests", usual / needed, 1.0),
        ]
