"""How the data files of a table are to look, as its properties say: where, how large, how encoded, what is measured."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
from pyiceberg.io.pyarrow import MetricsMode, match_metrics_mode, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

from headwater.kernel.ids import Ulid
from headwater.kernel.randomness import Randomness
from headwater.tables.blooms import bloom_options
from headwater.tables.leaves import Leaf, leaves, stored_fields
from headwater.tables.model import TableUsageError, UnsupportedTableError
from headwater.tables.naming import token_of
from headwater.tables.placing import Placing

DATA_PATH = "write.data.path"
TARGET_FILE_SIZE = "write.target-file-size-bytes"
ROW_GROUP_SIZE = "write.parquet.row-group-size-bytes"
COMPRESSION = "write.parquet.compression-codec"
COMPRESSION_LEVEL = "write.parquet.compression-level"
METRICS_DEFAULT = "write.metadata.metrics.default"
METRICS_COLUMN = "write.metadata.metrics.column."

MEGABYTE = 1 << 20
_LONGEST_SEGMENT = 120
_BOUND_LENGTH = "truncate(16)"


@dataclass(frozen=True)
class Layout:
    """How the files of one table are to look."""

    metadata: TableMetadata
    fields: tuple[NestedField, ...]
    columns: tuple[Leaf, ...]
    modes: Mapping[int, MetricsMode]
    folder: str
    token: str
    target_bytes: int
    group_bytes: int

    @property
    def arrow(self) -> pa.Schema:
        """What is written, with its field ids."""
        return schema_to_pyarrow(Schema(*self.fields))

    def writer_options(self, rows_per_group: int) -> dict[str, Any]:
        """What the Parquet writer is told."""
        properties = self.metadata.properties
        codec = properties.get(COMPRESSION, "zstd").lower()
        options: dict[str, Any] = {
            "compression": "none" if codec == "uncompressed" else codec,
            "store_schema": False,
            "store_decimal_as_integer": True,
            "write_page_index": True,
            "write_page_checksum": True,
        }
        if COMPRESSION_LEVEL in properties:
            options["compression_level"] = _number(properties, COMPRESSION_LEVEL, 0)
        blooms = bloom_options(self.columns, properties, rows_per_group)
        return {**options, "bloom_filter_options": blooms} if blooms else options


def layout_of(
    metadata: TableMetadata,
    lineage: Sequence[NestedField],
    randomness: Randomness,
    operation: Ulid | None = None,
    placing: Placing = Placing(),  # noqa: B008  (frozen)
) -> Layout:
    """The layout of new files of the table as it is now; they hold these fields of lineage too.

    Their names tell the operation; of files without one nobody can tell later whether a commit ever held them.
    """
    schema, properties = metadata.schema(), metadata.properties
    fields = (*stored_fields(schema.fields), *lineage)
    if not fields:
        raise UnsupportedTableError(
            f"{metadata.location} has no column that a file could hold", hint="add one", path=metadata.location
        )
    columns = tuple(leaves(fields))
    return Layout(
        metadata,
        fields,
        columns,
        metrics_modes(columns, properties),
        placing.data_folder_of(metadata, properties.get(DATA_PATH)),
        token_of(operation, randomness) if operation else randomness.randbytes(16).hex(),
        _number(properties, TARGET_FILE_SIZE, 128 * MEGABYTE),
        _number(properties, ROW_GROUP_SIZE, 128 * MEGABYTE),
    )


def target_file_bytes(metadata: TableMetadata) -> int:
    """How large the files of the table are to be."""
    return _number(metadata.properties, TARGET_FILE_SIZE, 128 * MEGABYTE)


def metrics_modes(columns: Sequence[Leaf], properties: Mapping[str, str]) -> dict[int, MetricsMode]:
    """What is measured of each column, as the table's properties say."""
    usual = _metrics_mode(METRICS_DEFAULT, properties.get(METRICS_DEFAULT, _BOUND_LENGTH))
    modes = {}
    for leaf in columns:
        own = properties.get(METRICS_COLUMN + leaf.name)
        mode = usual if own is None else _metrics_mode(METRICS_COLUMN + leaf.name, own)
        modes[leaf.field_id] = mode
    return modes


def _metrics_mode(name: str, value: str) -> MetricsMode:
    try:
        return match_metrics_mode(value)
    except ValueError as error:
        raise _bad_property(name, value, "none, counts, full, or truncate(n)") from error


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    if not text.strip().isdigit() or int(text) < 1:
        raise _bad_property(name, text, "a whole number above zero")
    return int(text)


def _bad_property(name: str, value: str, expected: str) -> TableUsageError:
    return TableUsageError(
        f"the table property {name} is {value!r}", hint=f"set it to {expected}", property=name, value=value
    )


def partition_folder(record: Record, metadata: TableMetadata) -> str:
    """The folders of a partition, for people: nobody reads values from them, so long ones are cut."""
    if not metadata.spec().fields:
        return ""
    spec = metadata.spec()
    try:
        segments = spec.partition_to_path(record, metadata.schema()).split("/")
    except OverflowError:  # a year that Python does not have: then as a number
        named = zip(spec.fields, (record[place] for place in range(len(record))), strict=True)
        segments = [f"{quote_plus(field.name)}={quote_plus(str(value))}" for field, value in named]
    return "".join(f"{_shortened(each)}/" for each in segments)


def _shortened(segment: str) -> str:
    if len(segment) <= _LONGEST_SEGMENT:
        return segment
    return f"{segment[: _LONGEST_SEGMENT - 17]}-{hashlib.sha256(segment.encode()).hexdigest()[:16]}"
