"""Bloom filters of Parquet files: for which columns a table declares them, how large they are, which files lack some.

Columns are declared by Iceberg's own properties. A filter tells that a value is not in a row group, so that who looks
for one value does not read the others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import FileFormat
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.types import BooleanType

from headwater.tables.file_columns import FileColumns
from headwater.tables.files import FileReader
from headwater.tables.leaves import Leaf
from headwater.tables.model import TableCorruptError, TableFile, TableUsageError
from headwater.tables.span_file import open_span_file

BLOOM_ENABLED = "write.parquet.bloom-filter-enabled.column."
BLOOM_FPP = "write.parquet.bloom-filter-fpp.column."
BLOOM_MAX_BYTES = "write.parquet.bloom-filter-max-bytes"

# What Iceberg's own writers take where nothing is said.
_DEFAULT_FPP = 0.01
_DEFAULT_MAX_BYTES = 1 << 20
_LEAST_BYTES = 32  # one block of a split filter


def declared_blooms(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The columns for which the table declares filters, in order; whether it has them is not asked."""
    enabled = (key for key, value in properties.items() if key.startswith(BLOOM_ENABLED) and value.lower() == "true")
    return tuple(sorted(key.removeprefix(BLOOM_ENABLED) for key in enabled))


def can_have_bloom(leaf: Leaf) -> bool:
    """Whether files can have a filter for this column: two values need none, and lists are not looked into."""
    return not leaf.repeated and not isinstance(leaf.kind, BooleanType)


def bloom_options(
    columns: Iterable[Leaf], properties: Mapping[str, str], rows_per_group: int
) -> dict[str, dict[str, float]]:
    """What the Parquet writer is told, by column. What is declared of columns that cannot have one is passed over."""
    declared = frozenset(declared_blooms(properties))
    if not declared:
        return {}
    most_bytes = _most_bytes(properties)
    return {
        leaf.name: {"ndv": _values(rows_per_group, fpp, most_bytes), "fpp": fpp}
        for leaf in columns
        if leaf.name in declared and can_have_bloom(leaf)
        for fpp in (_fpp(properties, leaf.name),)
    }


def lacks_bloom(
    files: FileReader, file: TableFile, mapping: Sequence[MappedField] | None, field_ids: Collection[int]
) -> bool:
    """Whether a row group of the file has no filter for one of these columns, though it has the column."""
    if file.file_format != FileFormat.PARQUET:
        return False
    source = open_span_file(files, file.file_path, file.file_size_in_bytes)
    try:
        parquet = pq.ParquetFile(source)
        footer, columns = parquet.metadata, FileColumns(parquet.schema_arrow, mapping, file.file_path)
    except (pa.ArrowException, OSError) as error:
        raise TableCorruptError(file.file_path, f"cannot be read as Parquet: {error}") from error
    places = [columns.plain_leaves[each][0] for each in field_ids if each in columns.plain_leaves]
    groups = (footer.row_group(each) for each in range(footer.num_row_groups))
    return any(group.column(place).bloom_filter_offset is None for group in groups for place in places)


def _values(rows: int, fpp: float, most_bytes: int) -> int:
    """For how many different values a filter is made: as many as there are rows, if it does not get too large then."""
    # Sizes are powers of two, so the largest that is allowed is one.
    largest = 1 << (most_bytes.bit_length() - 1)
    bits_per_value = -8 / math.log(1 - fpp ** (1 / 8))
    return max(1, min(rows, math.floor(largest * 8 / bits_per_value)))


def _fpp(properties: Mapping[str, str], column: str) -> float:
    text = properties.get(BLOOM_FPP + column)
    if text is None:
        return _DEFAULT_FPP
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise _bad_property(BLOOM_FPP + column, text, "a probability between 0 and 1, like 0.01")
    return value


def _most_bytes(properties: Mapping[str, str]) -> int:
    text = properties.get(BLOOM_MAX_BYTES)
    if text is None:
        return _DEFAULT_MAX_BYTES
    if not text.strip().isdecimal() or int(text) < _LEAST_BYTES:
        raise _bad_property(BLOOM_MAX_BYTES, text, f"a whole number from {_LEAST_BYTES} on")
    return int(text)


def _bad_property(name: str, value: str, expected: str) -> TableUsageError:
    return TableUsageError(
        f"the table property {name} is {value!r}", hint=f"set it to {expected}", property=name, value=value
    )
