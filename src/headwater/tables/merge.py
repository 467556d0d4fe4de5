"""Laying rows over a table by key: where a key matches, the row of the table gives way; where none does, it is new.

The keys of the source prune the files that are looked at; in each of those, only keys and positions are read.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, In, LessThanOrEqual
from pyiceberg.schema import Schema
from pyiceberg.types import TimestampNanoType, TimestamptzNanoType
from pyroaring import BitMap64

from headwater.tables.arrow import as_numbers, plain, plain_schema
from headwater.tables.files import FileReader
from headwater.tables.model import (
    POSITION_COLUMN,
    ROW_ID_COLUMN,
    FileTask,
    ScanPlan,
    Staged,
    TableUsageError,
    TableVersion,
)
from headwater.tables.operations import edit_planned
from headwater.tables.parquet import FileSink
from headwater.tables.read import read_task
from headwater.tables.scan import ALWAYS_TRUE, plan_scan
from headwater.tables.snapshot import Staging
from headwater.tables.user_rows import fit_keys

# Up to this many keys are looked for one by one in the bounds of files; more are looked for as a range.
_KEYS_ONE_BY_ONE = 200
_SOURCE = "__headwater_source"


class WhenMatched(enum.StrEnum):
    """What becomes of a row of the table that has a match in the source."""

    UPDATE = "update"
    DELETE = "delete"
    KEEP = "keep"


class WhenNotMatched(enum.StrEnum):
    """What becomes of a row of the source that has no match in the table."""

    INSERT = "insert"
    SKIP = "skip"


@dataclass(frozen=True)
class Matches:
    """Rows of a table that have a key of the source.

    By data file, their positions; and then row by row: the place in the source of the row that each matches, its row
    id (-1 where it has none), and those of its columns that were asked for.
    """

    deletes: tuple[tuple[FileTask, BitMap64], ...]
    source: npt.NDArray[np.int64]
    row_ids: npt.NDArray[np.int64]
    rows: pa.Table


def upsert(
    staging: Staging, base: TableVersion, rows: pa.Table, *, on: Sequence[str], sink: FileSink | None = None
) -> Staged:
    """Put rows in the place of those with the same key; add those whose key is new."""
    return merge(staging, base, rows, on=on, sink=sink)


def merge(
    staging: Staging,
    base: TableVersion,
    source: pa.Table,
    *,
    on: Sequence[str],
    matched: WhenMatched = WhenMatched.UPDATE,
    not_matched: WhenNotMatched = WhenNotMatched.INSERT,
    sink: FileSink | None = None,
) -> Staged:
    """Lay the source over the table by key. A key with a null matches nothing. An updated row keeps its id (v3)."""
    found = find_matches(staging.files, base, source, on=on)
    is_matched = np.zeros(source.num_rows, dtype=bool)
    is_matched[found.source] = True
    wanted = np.zeros(source.num_rows, dtype=bool)
    if matched is WhenMatched.UPDATE:
        wanted |= is_matched
    if not_matched is WhenNotMatched.INSERT:
        wanted |= ~is_matched
    deletes = () if matched is WhenMatched.KEEP else found.deletes
    return edit_planned(staging, base, deletes, _chosen(with_row_ids(source, base, found), wanted), sink=sink)


def with_row_ids(source: pa.Table, base: TableVersion, found: Matches) -> pa.Table:
    """The source with the ids that its rows take over from those they match (v3); before v3 there are none."""
    if base.metadata.format_version < 3:
        return source
    row_ids = np.full(source.num_rows, -1, dtype=np.int64)
    row_ids[found.source] = found.row_ids
    return source.append_column(ROW_ID_COLUMN, pa.array(row_ids, mask=row_ids < 0))


def last_of_each(rows: pa.Table, on: Sequence[str]) -> pa.Table:
    """The rows without those that have the key of a later one."""
    keys = pa.table({name: _comparable(rows[name]) for name in on})
    numbered = keys.append_column(_SOURCE, pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by(list(on), use_threads=False).aggregate([(_SOURCE, "max")])
    if last.num_rows == rows.num_rows:
        return rows
    return rows.take(pa.array(np.sort(last[f"{_SOURCE}_max"].to_numpy())))


def find_matches(
    files: FileReader, base: TableVersion, source: pa.Table, *, on: Sequence[str], columns: Sequence[str] = ()
) -> Matches:
    """Where the table has rows with the keys of the source, and these columns of them."""
    keys = _keys(base, source, on)
    plan = plan_scan(files, base.metadata, row_filter=_keys_filter(keys, base.metadata.schema()))
    deletes, parts = [], []
    for task, part in _find(files, plan, keys, columns, with_ids=base.metadata.format_version >= 3):
        deletes.append((task, BitMap64(part[POSITION_COLUMN].to_numpy())))
        parts.append(part)
    none = plain_schema([base.metadata.schema().find_field(each) for each in columns]).empty_table()
    found = pa.concat_tables(parts) if parts else None
    return Matches(
        tuple(deletes),
        found[_SOURCE].to_numpy() if found is not None else np.empty(0, np.int64),
        found[ROW_ID_COLUMN].to_numpy() if found is not None else np.empty(0, np.int64),
        found.select(list(columns)) if found is not None else none,
    )


def _chosen(rows: pa.Table, wanted: npt.NDArray[np.bool_]) -> pa.Table:
    """Only these rows. Arrow cannot choose among views of text and octets, so they are made plain ones."""
    fields = []
    for each in rows.schema:
        if pa.types.is_string_view(each.type):
            fields.append(each.with_type(pa.large_string()))
        elif pa.types.is_binary_view(each.type):
            fields.append(each.with_type(pa.large_binary()))
        else:
            fields.append(each)
    return rows.cast(pa.schema(fields)).filter(pa.array(wanted))


def _find(
    files: FileReader, plan: ScanPlan, keys: pa.Table, columns: Sequence[str], *, with_ids: bool
) -> Iterator[tuple[FileTask, pa.Table]]:
    extra = frozenset({POSITION_COLUMN, ROW_ID_COLUMN} if with_ids else {POSITION_COLUMN})
    on = tuple(keys.column_names)
    read = tuple(dict.fromkeys((*on, *columns)))
    for task in plan.tasks:
        batches = list(read_task(files, task, plan=plan, columns=read, extra=extra))
        if not batches:
            continue
        there = pa.Table.from_batches(batches)
        places = _places([_comparable(there[name]) for name in on], [keys[name] for name in on])
        found = np.flatnonzero(places >= 0)
        if len(found):
            rows = there.take(pa.array(found)).append_column(_SOURCE, pa.array(places[found]))
            # Rows from before the table had row ids have none.
            ids = rows[ROW_ID_COLUMN].fill_null(-1) if with_ids else pa.array(np.full(len(found), -1, np.int64))
            rows = rows.drop_columns([ROW_ID_COLUMN]) if with_ids else rows
            yield task, rows.append_column(ROW_ID_COLUMN, ids)


def _places(values: Sequence[pa.ChunkedArray], keys: Sequence[pa.ChunkedArray]) -> npt.NDArray[np.int64]:
    """For each row the place of its key among the keys, which are unique; -1 where there is none, or a null.

    Column by column, values become numbers of distinct values; two such numbers make one, which is numbered again.
    """
    if len(keys) == 1:
        return _numbers(values[0], keys[0].combine_chunks())
    found, wanted = np.zeros(len(values[0]), np.int64), np.zeros(len(keys[0]), np.int64)
    for column, key in zip(values, keys, strict=True):
        distinct = pc.unique(key)
        here, there = _numbers(column, distinct), _numbers(key, distinct)
        found = np.where((found < 0) | (here < 0), -1, found * len(distinct) + here)
        wanted = np.where((wanted < 0) | (there < 0), -1, wanted * len(distinct) + there)
        known = pa.array(np.unique(wanted[wanted >= 0]))
        found, wanted = _numbers(pa.array(found), known), _numbers(pa.array(wanted), known)
    places = np.empty(len(known), np.int64)
    places[wanted[wanted >= 0]] = np.flatnonzero(wanted >= 0)
    return np.where(found < 0, -1, places[found]) if len(known) else found


def _numbers(values: pa.Array | pa.ChunkedArray, distinct: pa.Array) -> npt.NDArray[np.int64]:
    """The place of each value among distinct ones; -1 where it is none of them, or null."""
    places = pc.index_in(values, value_set=distinct, skip_nulls=True).fill_null(-1)
    numbers: npt.NDArray[np.int64] = places.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """As Arrow's join compares, which is by bits: without extension types, and with one zero."""
    values = plain(values)
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values


def _keys_filter(keys: pa.Table, schema: Schema) -> BooleanExpression:
    """What every row with a key of the source satisfies; used to leave out files."""
    parts: list[BooleanExpression] = []
    for name in keys.column_names:
        if isinstance(schema.find_type(name), TimestampNanoType | TimestamptzNanoType):
            continue  # for which PyIceberg has no literals
        values = as_numbers(pc.unique(keys[name]).drop_null())
        if not len(values):
            continue
        if len(values) <= _KEYS_ONE_BY_ONE:
            parts.append(In(name, set(values.to_pylist())))  # type: ignore[call-arg]
        else:
            ends = pc.min_max(values)
            parts += [
                GreaterThanOrEqual(name, ends["min"].as_py()),  # type: ignore[call-arg]
                LessThanOrEqual(name, ends["max"].as_py()),  # type: ignore[call-arg]
            ]
    return And(ALWAYS_TRUE, ALWAYS_TRUE, *parts)


def _keys(base: TableVersion, source: pa.Table, on: Sequence[str]) -> pa.Table:
    """The keys of the source, as the table has them; refused where they cannot tell rows apart."""
    if not on:
        raise TableUsageError("a merge needs at least one key column")
    fields = {each.name: each for each in base.metadata.schema().fields}
    for name in on:
        if source.column_names.count(name) != 1:
            times = "no" if name not in source.column_names else "more than one"
            raise TableUsageError(f"the source has {times} key column {name}", column=name)
        if name not in fields:
            raise TableUsageError(f"{base.metadata.location} has no column {name}", column=name)
        if not fields[name].field_type.is_primitive:
            raise TableUsageError(
                f"column {name} cannot be a key: it is {fields[name].field_type}", hint="use plain columns", column=name
            )
    fitted = fit_keys(source, [fields[name] for name in on])
    keys = pa.table({name: _comparable(fitted[name]) for name in on})
    for name in on:
        if pa.types.is_floating(keys[name].type) and pc.any(pc.is_nan(keys[name])).as_py():
            raise TableUsageError(f"the key {name} is NaN in some of the rows", hint="NaN equals nothing", column=name)
    if keys.group_by(list(on)).aggregate([]).num_rows != keys.num_rows:
        raise TableUsageError(
            f"two rows of the source have the same key ({', '.join(on)})",
            hint="keep one of them: the last, for example",
            columns=list(on),
        )
    return keys
