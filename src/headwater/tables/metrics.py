"""What the manifest entry of a file says of its columns: sizes, counts and bounds.

Bounds and counts are taken from the rows themselves, not from the statistics that Parquet keeps of them: those leave
out long values, and a bound over what is left would hide rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode
from pyiceberg.types import BinaryType, DoubleType, FloatType, PrimitiveType, StringType

from headwater.tables.arrow import as_numbers
from headwater.tables.leaves import Leaf, column_of


def measure(
    table: pa.Table, columns: Sequence[Leaf], modes: Mapping[int, MetricsMode], footer: pq.FileMetaData
) -> dict[str, dict[int, Any]]:
    """The metrics of one file, by the names of the fields of its manifest entry."""
    sizes: dict[int, int] = {}
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    nans: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    groups = [footer.row_group(each) for each in range(footer.num_row_groups)]
    for place, leaf in enumerate(columns):
        chunks = [group.column(place) for group in groups]
        sizes[leaf.field_id] = sum(each.total_compressed_size for each in chunks)
        mode = modes[leaf.field_id]
        if mode.type is MetricModeTypes.NONE:
            continue
        values[leaf.field_id] = sum(each.num_values for each in chunks)
        if leaf.repeated:
            if all(each.is_stats_set and each.statistics.has_null_count for each in chunks):
                nulls[leaf.field_id] = sum(each.statistics.null_count for each in chunks)
            continue
        column = as_numbers(column_of(table, leaf))
        nulls[leaf.field_id] = column.null_count
        if isinstance(leaf.kind, FloatType | DoubleType):
            is_nan = pc.is_nan(column)
            nans[leaf.field_id] = pc.sum(is_nan).as_py() or 0
            column = column.filter(pc.invert(is_nan)) if nans[leaf.field_id] else column
        if mode.type is MetricModeTypes.COUNTS or column.null_count == len(column):
            continue
        extremes = pc.min_max(column).as_py()
        lower[leaf.field_id] = lower_bound(leaf.kind, extremes["min"], mode.length)
        if (bound := upper_bound(leaf.kind, extremes["max"], mode.length)) is not None:
            upper[leaf.field_id] = bound
    return {
        "column_sizes": sizes,
        "value_counts": values,
        "null_value_counts": nulls,
        "nan_value_counts": nans,
        "lower_bounds": lower,
        "upper_bounds": upper,
    }


def lower_bound(kind: PrimitiveType, value: Any, length: int | None) -> bytes:
    """A value that is not larger, in the bytes of a manifest."""
    if length is not None and isinstance(kind, StringType | BinaryType):
        value = value[:length]
    elif isinstance(kind, FloatType | DoubleType) and value == 0:
        value = -0.0
    return to_bytes(kind, value)


def upper_bound(kind: PrimitiveType, value: Any, length: int | None) -> bytes | None:
    """A value that is not smaller, in the bytes of a manifest; None where no short one is."""
    if length is not None and isinstance(kind, StringType | BinaryType) and len(value) > length:
        value = _next_text(value[:length]) if isinstance(value, str) else _next_octets(value[:length])
        if value is None:
            return None
    elif isinstance(kind, FloatType | DoubleType) and value == 0:
        value = 0.0
    return to_bytes(kind, value)


def _next_text(prefix: str) -> str | None:
    """The smallest text of at most this length that is behind all that begin with `prefix`."""
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1]) + 1
        if 0xD800 <= point < 0xE000:
            point = 0xE000  # surrogates are no characters
        if point <= 0x10FFFF:
            return prefix[: end - 1] + chr(point)
    return None


def _next_octets(prefix: bytes) -> bytes | None:
    for end in range(len(prefix), 0, -1):
        if prefix[end - 1] < 0xFF:
            return prefix[: end - 1] + bytes((prefix[end - 1] + 1,))
    return None


def split_offsets(footer: pq.FileMetaData) -> list[int]:
    """Where each row group begins: readers may share a file there."""
    firsts = [footer.row_group(each).column(0) for each in range(footer.num_row_groups)]
    return sorted(
        min(each.dictionary_page_offset, each.data_page_offset) if each.has_dictionary_page else each.data_page_offset
        for each in firsts
    )
