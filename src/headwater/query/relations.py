"""A table's files as one DuckDB view: read natively, masked by deleted positions, or copied; pending rows behind them.

A mask is one bit string for each data file, joined by the file's place in the list of the scan. That costs less than
an anti join over positions, and the position is the row's own in its file, whatever filters were pushed down.
"""

# ruff: noqa: S608 (every name and value in the SQL here is quoted by `types`, or made here)

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.types import NestedField
from pyroaring import BitMap64

from headwater.query.arrow import for_duckdb
from headwater.query.conditions import EVERYTHING
from headwater.query.decide import Layout, check_rows, lay_out, may_hold_nan
from headwater.query.engine import Engine
from headwater.query.filesystem import ROOT, LakeFileSystem
from headwater.query.fragments import casted, declared, extra_column, mapped, nulls, own_column, renamed
from headwater.query.masks import check_within, file_rows
from headwater.query.model import ReadRows
from headwater.query.predicates import Needed
from headwater.query.references import DATABASE
from headwater.query.references import INTERNAL as INTERNAL_SCHEMA
from headwater.query.types import column, name, value
from headwater.tables.files import Files, normalise
from headwater.tables.model import (
    FILE_COLUMN,
    POSITION_COLUMN,
    ROW_ID_COLUMN,
    UPDATED_COLUMN,
    FileTask,
    ScanPlan,
    TableCorruptError,
)
from headwater.tables.read import EXTRA_COLUMNS, read_task

INTERNAL = f"{name(DATABASE)}.{name(INTERNAL_SCHEMA)}"
_LOCAL = "file://"
_PATTERN = frozenset("*?[]{}\\")
_ROWS_FROM_FILES = "hive_partitioning=false, filename=false"
_ROW_COUNTS = "SELECT file_name, num_rows FROM parquet_file_metadata(?)"
_WITHOUT_IDS = "SELECT file_name FROM parquet_schema(?) GROUP BY file_name HAVING count(field_id) = 0"
FOOTERS_AT_A_TIME = 16


@dataclass(frozen=True)
class Wanted:
    """One table of a query, planned: what to read, what a transaction has done to it, whether places are shown."""

    label: str
    plan: ScanPlan
    rows: pa.Table | None = None
    deletes: Mapping[str, BitMap64] = field(default_factory=dict)
    positions: bool = False
    needed: Needed | None = None
    late: ReadRows | None = None

    @property
    def extra(self) -> tuple[str, ...]:
        """The columns that are not of the table."""
        if not self.positions:
            return ()
        lineage = (ROW_ID_COLUMN, UPDATED_COLUMN) if self.plan.metadata.format_version >= 3 else ()
        return (FILE_COLUMN, POSITION_COLUMN, *lineage)

    @property
    def fields(self) -> tuple[NestedField, ...]:
        """All columns of its view."""
        return (*self.plan.schema.fields, *(EXTRA_COLUMNS[each] for each in self.extra))

    def is_needed(self, field: NestedField) -> bool:
        """Whether the query can depend on the column. One that it never reads may still be counted: keep the first."""
        if self.needed is None or field.name in self.extra or field is self.plan.schema.fields[0]:
            return True
        return column(field.field_id) in self.needed.columns


class Relations:
    """Makes the views of one query in one DuckDB."""

    def __init__(
        self, engine: Engine, files: Files, filesystem: LakeFileSystem, check_time: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._files = files
        self._filesystem = filesystem
        self._check_time = check_time
        self._numbers = count()
        self._paths: dict[str, str] = {}
        engine.execute(f"CREATE SCHEMA {INTERNAL}")

    @property
    def paths(self) -> list[str]:
        """Every file that DuckDB may open."""
        return list(self._paths.values())

    def stand_in(self, fields: Iterable[NestedField]) -> tuple[str, str]:
        """An empty table with these columns: its name, and the query that shows it under the table's own names."""
        fields = tuple(fields)
        made = f"stand_in_{next(self._numbers)}"
        self._engine.execute(f"CREATE TABLE {INTERNAL}.{made} ({declared(fields)})")
        return made, f"SELECT {renamed(fields)} FROM {INTERNAL}.{made}"

    def query(self, wanted: Wanted) -> str:
        """The query that gives the table's rows."""
        deletes = {normalise(location): positions for location, positions in wanted.deletes.items() if positions}
        also_deleted = [task.file.file_path for task in wanted.plan.tasks if normalise(task.file.file_path) in deletes]
        layout = lay_out(wanted.plan, also_deleted)
        if without := self._check_footers((*layout.plain, *layout.masked)):
            layout = lay_out(wanted.plan, also_deleted, without)
        parts = list(self._parts(wanted, layout, deletes))
        parts += [f"SELECT {nulls(wanted.fields)} WHERE false"] if not parts else []
        return f"SELECT {renamed(wanted.fields)} FROM ({' UNION ALL '.join(parts)})"

    def _parts(self, wanted: Wanted, layout: Layout, deletes: Mapping[str, BitMap64]) -> Iterator[str]:
        if layout.plain:
            yield self._native(wanted, layout.plain, None)
        if layout.masked:
            yield self._native(wanted, layout.masked, deletes)
        if layout.copied:
            yield self._copied(wanted, layout.copied, deletes)
        if wanted.rows is not None and wanted.rows.num_rows:
            yield self._pending(wanted, wanted.rows)
        if wanted.late is not None:
            yield self._late(wanted, wanted.late)

    def _native(self, wanted: Wanted, tasks: Sequence[FileTask], deletes: Mapping[str, BitMap64] | None) -> str:
        lineage = [EXTRA_COLUMNS[each] for each in (ROW_ID_COLUMN, UPDATED_COLUMN) if each in wanted.extra]
        paths = ", ".join(value(self._path(task)) for task in tasks)
        schema = ", ".join(map(mapped, (*wanted.plan.schema.fields, *lineage)))
        scan = f"read_parquet([{paths}], schema=MAP {{{schema}}}, {_ROWS_FROM_FILES})"
        own = [own_column(each, guarded=may_hold_nan(tasks, each)) for each in wanted.plan.schema.fields]
        chosen = ", ".join([*own, *(extra_column(each) for each in wanted.extra)])
        if deletes is None and not wanted.extra:
            return f"SELECT {chosen} FROM {scan} AS t"
        made = self._about_files(tasks, deletes)
        # A key of 32 bits is the cheapest; without the cast DuckDB would join numbers of 128 bits.
        joined = f"SELECT {chosen} FROM {scan} AS t JOIN {made} AS f ON f.file = t.file_index::INTEGER"
        return joined if deletes is None else f"{joined} WHERE get_bit(f.bits, t.file_row_number::INTEGER) = 0"

    def _path(self, task: FileTask) -> str:
        """How DuckDB names the file. A location outside of every allowed prefix is refused here."""
        location = task.file.file_path
        if location not in self._paths:
            self._paths[location] = self._named(task, location)
        return self._paths[location]

    def _named(self, task: FileTask, location: str) -> str:
        self._files.place(location)
        path = normalise(location)
        if not path.startswith(_LOCAL) or _PATTERN & set(path):
            return self._filesystem.add(location, task.file.file_size_in_bytes)
        path = path.removeprefix(_LOCAL)
        if not Path(path).is_file():
            raise TableCorruptError(location, "is missing, though the table's metadata needs it")
        return path

    def _check_footers(self, tasks: Sequence[FileTask]) -> frozenset[str]:
        """Files none of whose columns has a field id: natively every one of them would read as NULL.

        A file that has not as many rows as its manifest says is refused.
        """
        by_path = {self._path(task): task for task in tasks}
        local = [path for path in by_path if not path.startswith(ROOT)]
        remote = [path for path in by_path if path.startswith(ROOT)]
        parts = [remote[start : start + FOOTERS_AT_A_TIME] for start in range(0, len(remote), FOOTERS_AT_A_TIME)]
        parts = [part for part in (local, *parts) if part]
        for path, row_count in self._engine.fetch_in_parts(_ROW_COUNTS, parts):
            check_rows(by_path[path].file, row_count)
        without = self._engine.fetch_in_parts(_WITHOUT_IDS, parts)
        return frozenset(by_path[path].file.file_path for (path,) in without)

    def _about_files(self, tasks: Sequence[FileTask], deletes: Mapping[str, BitMap64] | None) -> str:
        made = f"{INTERNAL}.files_{next(self._numbers)}"
        self._engine.execute(
            f"CREATE TABLE {made} (file INTEGER, location VARCHAR, first_row_id BIGINT, sequence BIGINT, bits BIT)"
        )
        for rows in file_rows(self._files, tasks, deletes):
            self._insert(f"INSERT INTO {made} SELECT file, location, first_row_id, sequence, bits::BLOB::BIT", rows)
        return made

    def _copied(self, wanted: Wanted, tasks: Sequence[FileTask], deletes: Mapping[str, BitMap64]) -> str:
        """Copy what the query can depend on; other columns stay NULL, and other rows away."""
        made = f"{INTERNAL}.copied_{next(self._numbers)}"
        self._engine.execute(f"CREATE TABLE {made} ({declared(wanted.fields)})")
        fields = [each for each in wanted.fields if wanted.is_needed(each)]
        names = [column(each.field_id) for each in fields]
        for task in tasks:
            self._check_time()
            for batch in _live(self._files, task, wanted, deletes.get(normalise(task.file.file_path))):
                rows = for_duckdb(pa.Table.from_batches([batch.select([each.name for each in fields])]))
                statement = f"INSERT INTO {made} ({', '.join(names)}) SELECT {casted(fields)}"
                self._insert(statement, rows.rename_columns(names))
                self._check_time()
        return f"SELECT * FROM {made}"

    def _pending(self, wanted: Wanted, rows: pa.Table) -> str:
        made = f"{INTERNAL}.pending_{next(self._numbers)}"
        self._engine.execute(f"CREATE TABLE {made} ({declared(wanted.fields)})")
        arrays: list[pa.ChunkedArray | pa.Array] = []
        for each in wanted.fields:
            if each.name == POSITION_COLUMN and wanted.positions:
                arrays.append(pa.array(range(rows.num_rows), pa.int64()))
            elif each.name in rows.column_names and each.name not in wanted.extra:
                arrays.append(rows[each.name])
            else:
                arrays.append(pa.nulls(rows.num_rows))
        filled = for_duckdb(pa.table(arrays, [column(each.field_id) for each in wanted.fields]))
        self._insert(f"INSERT INTO {made} SELECT {casted(wanted.fields)}", filled)
        return f"SELECT * FROM {made}"

    def _late(self, wanted: Wanted, read: ReadRows) -> str:
        """Copy what the query can depend on, as it comes; other columns stay NULL."""
        made = f"{INTERNAL}.late_{next(self._numbers)}"
        self._engine.execute(f"CREATE TABLE {made} ({declared(wanted.fields)})")
        fields = [each for each in wanted.plan.schema.fields if wanted.is_needed(each)]
        names = [column(each.field_id) for each in fields]
        condition = EVERYTHING if wanted.needed is None else wanted.needed.rows
        for rows in read([each.name for each in fields], condition):
            self._check_time()
            statement = f"INSERT INTO {made} ({', '.join(names)}) SELECT {casted(fields)}"
            self._insert(statement, for_duckdb(rows).rename_columns(names))
        return f"SELECT * FROM {made}"

    def _insert(self, statement: str, rows: pa.Table) -> None:
        self._engine.insert(statement, rows)


def _live(files: Files, task: FileTask, wanted: Wanted, deletes: BitMap64 | None) -> Iterator[pa.RecordBatch]:
    """The rows of a file that cannot be read natively."""
    columns = tuple(each.name for each in wanted.plan.schema.fields if wanted.is_needed(each))
    rows = EVERYTHING if wanted.needed is None else wanted.needed.rows
    extra = frozenset(wanted.extra) | ({POSITION_COLUMN} if deletes else frozenset())
    batches = read_task(files, task, plan=wanted.plan, columns=columns, row_filter=rows, extra=extra)
    if not deletes:
        yield from batches
        return
    check_within(deletes, task)
    deleted = np.zeros(task.file.record_count, bool)
    deleted[np.asarray(deletes.to_array())] = True
    for batch in batches:
        yield batch.filter(pa.array(~deleted[batch.column(POSITION_COLUMN).to_numpy()]))
