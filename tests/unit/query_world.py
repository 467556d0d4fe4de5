"""Tables for tests of queries: a folder of them, written by the product, with a source that opens them by name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyroaring import BitMap64

from headwater.catalog.model import TableKey
from headwater.kernel.clock import SystemClock
from headwater.kernel.randomness import system_randomness
from headwater.query import OpenTable, OpenView, QueryOptions, run
from headwater.storage.file import FileStore
from headwater.storage.port import ObjectStore
from headwater.tables import operations
from headwater.tables.model import ScanPlan, TableVersion
from headwater.tables.scan import plan_scan
from tests.fixtures.tables import TableWorld

Opened = OpenTable | OpenView


class QueryWorld(TableWorld):
    """Tables by name. `opened` lists what queries have opened."""

    def __init__(self, root: str, store: ObjectStore) -> None:
        super().__init__(root, store)
        self.tables: dict[TableKey, TableVersion] = {}
        self.views: dict[TableKey, OpenView] = {}
        self.snapshot_ids: dict[TableKey, int] = {}
        self.opened: list[str] = []

    def names(self) -> Iterable[TableKey]:
        return [*self.tables, *self.views]

    def open(self, key: TableKey) -> Opened | None:
        self.opened.append(str(key))
        if key in self.views:
            return self.views[key]
        version = self.tables.get(key)
        return None if version is None else OpenTable(version.metadata, self.snapshot_ids.get(key))

    def table(
        self,
        name: str,
        schema: Schema,
        *rows: pa.Table,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        format_version: int = 3,
        properties: dict[str, str] | None = None,
    ) -> TableKey:
        """A new table with one file for each of `rows` and partition."""
        key = TableKey.parse(name)
        self.tables[key] = self.create(
            schema, name=name.replace(".", "/"), spec=spec, format_version=format_version, properties=properties
        )
        for each in rows:
            self.append(key, each)
        return key

    def append(self, key: TableKey, rows: pa.Table) -> None:
        self.tables[key] = self.commit(operations.append(self.staging(), self.tables[key], rows.to_batches()))

    def delete(self, key: TableKey, positions: dict[int, Iterable[int]]) -> None:
        """Delete rows by place of the data file in the plan, and position in it."""
        paths = self.paths(key)
        chosen = {paths[place]: BitMap64(each) for place, each in positions.items()}
        self.tables[key] = self.commit(operations.delete_positions(self.staging(), self.tables[key], chosen))

    def set_metadata(self, key: TableKey, metadata: TableMetadata) -> None:
        self.tables[key] = self.commit(metadata)

    def plan(self, key: TableKey) -> ScanPlan:
        return plan_scan(self.files, self.tables[key].metadata)

    def paths(self, key: TableKey) -> list[str]:
        return [task.file.file_path for task in self.plan(key).tasks]

    def run(self, sql: str, **options: Any) -> pa.Table:
        pending = options.pop("pending", None)
        more = {} if pending is None else {"pending": pending}
        return run(sql, self, self.files, options=QueryOptions(threads=2, **options), **more)

    def fetch(self, sql: str, **options: Any) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.run(sql, **options).to_pylist()]


def folder_world(folder: Path) -> QueryWorld:
    folder.mkdir(parents=True, exist_ok=True)
    return QueryWorld(f"file://{folder}", FileStore(folder, SystemClock(), system_randomness(), durable=False))
