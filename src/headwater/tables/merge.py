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

from headwater.tables.arrow import as_numbers, plain
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
_SOURCE = "__source"


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
class _Matches:
    """Rows of one data file that have a match: their positions, row ids (v3), and the source's rows they match."""

    task: FileTask
    positions: BitMap64
    source: npt.NDArray[np.int64]
    row_ids: npt.NDArray[np.int64] | None


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
    keys = _keys(base, source, on)
    keeps_ids = base.metadata.format_version >= 3
    is_matched = np.zeros(source.num_rows, dtype=bool)
    row_ids = np.full(source.num_rows, -1, dtype=np.int64)
    deletes = []
    plan = plan_scan(staging.files, base.metadata, row_filter=_keys_filter(keys, base.metadata.schema()))
    for found in _find(staging, plan, keys, with_ids=keeps_ids):
        is_matched[found.source] = True
        if found.row_ids is not None:
            row_ids[found.source] = found.row_ids
        if matched is not WhenMatched.KEEP:
            deletes.append((found.task, found.positions))
    wanted = np.zeros(source.num_rows, dtype=bool)
    if matched is WhenMatched.UPDATE:
        wanted |= is_matched
    if not_matched is WhenNotMatched.INSERT:
        wanted |= ~is_matched
    rows = source.append_column(ROW_ID_COLUMN, pa.array(row_ids, mask=row_ids < 0)) if keeps_ids else source
    return edit_planned(staging, base, deletes, _chosen(rows, wanted), sink=sink)


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


def _find(staging: Staging, plan: ScanPlan, keys: pa.Table, *, with_ids: bool) -> Iterator[_Matches]:
    extra = frozenset({POSITION_COLUMN, ROW_ID_COLUMN} if with_ids else {POSITION_COLUMN})
    on = tuple(keys.column_names)
    numbered = keys.append_column(_SOURCE, pa.array(np.arange(keys.num_rows)))
    for task in plan.tasks:
        batches = list(read_task(staging.files, task, plan=plan, columns=on, extra=extra))
        if not batches:
            continue
        there = pa.Table.from_batches(batches)
        for place, name in enumerate(on):
            there = there.set_column(place, name, _comparable(there[name]))
        joined = there.join(numbered, keys=list(on), join_type="inner")
        if joined.num_rows:
            yield _Matches(
                task,
                BitMap64(joined[POSITION_COLUMN].to_numpy()),
                joined[_SOURCE].to_numpy(),
                # Rows from before the table had row ids have none.
                joined[ROW_ID_COLUMN].fill_null(-1).to_numpy() if with_ids else None,
            )


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
