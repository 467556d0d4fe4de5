"""Values that a change brings or takes away, and what SQL needs to ask about them alone. Nothing here asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headwater.catalog.model import TableKey
from headwater.query.types import name, value
from headwater.tables.arrow import plain

# Where a question shows the values that it is about.
_SHOWN = "headwater values"
_COUNT = "count"
# Types whose least and greatest value can be written down, so that files out of their range need not be read.
_BOUNDED = {
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
    pa.large_string(): "VARCHAR",
    pa.string(): "VARCHAR",
}
_LONGEST_BOUND = 500


@dataclass(frozen=True)
class Shown:
    """Rows in memory that a question shows beside the tables of the lake."""

    number: int
    rows: pa.Table

    @property
    def key(self) -> TableKey:
        """Under which a question shows them."""
        return TableKey((_SHOWN,), f"v{self.number}")


@dataclass(frozen=True)
class Values(Shown):
    """Some distinct values of a list of columns, none of them null, as the columns k0, k1 and so on."""

    @property
    def source(self) -> str:
        """What a FROM says to see them, as `s`."""
        return f"{table(self.key)} AS s"

    def bounds(self, columns: Sequence[str]) -> str:
        """A condition that holds for every row with one of the values, and that lets files be left out."""
        return "".join(
            f" AND {column} BETWEEN {low} AND {high}"
            for column, found in zip(columns, self.rows.columns, strict=True)
            for low, high in _bounds(found)
        )


def grown(more: pa.Table | None, less: pa.Table | None, columns: Sequence[str], *, number: int) -> Values | None:
    """The values that more rows of `more` have than of `less`; None when there are none. A null is no value."""
    if more is None or not more.num_rows:
        return None
    names = [f"k{place}" for place in range(len(columns))]
    # Rows that were queried and rows that are to be written may hold the same values in types of different widths.
    kinds = [more[each].type for each in columns]
    sides = [_counted(rows, columns, kinds, by) for rows, by in ((more, 1), (less, -1)) if rows is not None]
    sums = pa.concat_tables(sides).group_by(names).aggregate([(_COUNT, "sum")])
    found = sums.filter(pc.greater(sums[f"{_COUNT}_sum"], 0)).select(names).drop_null()
    if not found.num_rows:
        return None
    typed = [_typed(found[each], kind) for each, kind in zip(names, kinds, strict=True)]
    return Values(number, pa.table(typed, names=names))


def table(key: TableKey) -> str:
    """A table as SQL names it; its namespace is one name, because DuckDB's grammar has no room for those of many."""
    return ".".join(name(part) for part in (".".join(key.namespace), key.name) if part)


def _counted(rows: pa.Table, columns: Sequence[str], kinds: Sequence[pa.DataType], by: int) -> pa.Table:
    arrays = [plain(rows[each]).cast(_stored(kind)) for each, kind in zip(columns, kinds, strict=True)]
    names = [*(f"k{place}" for place in range(len(columns))), _COUNT]
    return pa.table([*arrays, pa.repeat(pa.scalar(by, pa.int64()), rows.num_rows)], names=names)


def _stored(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _typed(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if not isinstance(kind, pa.BaseExtensionType):
        return values
    return pa.chunked_array([pa.ExtensionArray.from_storage(kind, each) for each in values.chunks], kind)


def _bounds(values: pa.ChunkedArray) -> list[tuple[str, str]]:
    kind = _BOUNDED.get(values.type)
    if kind is None:
        return []
    try:
        ends = [str(each) for each in pc.min_max(values).as_py().values()]
    except (OverflowError, ValueError):  # a time that Python cannot say
        return []
    if any(len(each) > _LONGEST_BOUND or "\0" in each for each in ends):
        return []
    low, high = (f"CAST({value(each)} AS {kind})" for each in ends)
    return [(low, high)]
