"""A segment becomes a Parquet file: one row group for each block, and a footer that says what memory knows.

Row groups are written as their blocks fill up: all of them at the end would take the processors from requests for as
long as it lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.ingest.buffer.model import FileCheckError
from headwater.ingest.buffer.segment import Block, Segment
from headwater.ingest.model import TIMESTAMP_COLUMN, TIMESTAMP_FIELD_ID
from headwater.storage.errors import PreconditionFailedError
from headwater.storage.port import Create, ObjectStore

_TAIL_BYTES = 8


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How files are written."""

    compression: str = "zstd"
    compression_level: int | None = 1


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a data file: the table's, and when each row was committed."""
    marks = {b"PARQUET:field_id": str(TIMESTAMP_FIELD_ID).encode()}
    return schema.append(pa.field(TIMESTAMP_COLUMN, pa.int64(), nullable=False, metadata=marks))


class Encoding:
    """The bytes of a segment's file, as far as they are made. Its segment's `preparing` guards it."""

    def __init__(self, schema: pa.Schema, form: FileFormat) -> None:
        # Iceberg keeps no column of type unknown: it may become one of any type.
        self._schema = pa.schema([each for each in stored_schema(schema) if not pa.types.is_null(each.type)])
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression=form.compression,
            compression_level=form.compression_level,
            write_page_checksum=True,
            store_schema=False,
            store_decimal_as_integer=True,  # as Iceberg asks for up to 18 digits
            # Numbers are mostly unlike each other: a dictionary of them takes time, and more room than it saves.
            use_dictionary=[each.name for each in self._schema if _is_text(each.type)],
        )
        self._blocks = 0
        self._data: bytes | None = None

    def write(self, blocks: Sequence[Block]) -> None:
        """Write the blocks that are not written yet; none of them takes another row."""
        for block in blocks[self._blocks :]:
            self._writer.write_table(block.view().rows.select(self._schema.names), row_group_size=block.capacity)
            self._blocks += 1

    def finish(self, blocks: Sequence[Block]) -> bytes:
        """The bytes of the file; asked again it gives the same ones, which a put that is tried again must bring."""
        if self._data is None:
            self.write(blocks)
            self._writer.close()
            self._data = bytes(self._sink.getvalue())
        return self._data


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def store(segment: Segment, data: bytes, files: ObjectStore) -> None:
    """Put the file, and make sure that it is there as it was made. A second time changes nothing."""
    try:
        files.put(segment.name, data, Create())
    except PreconditionFailedError:
        if files.get(segment.name).data != data:
            raise FileCheckError(
                f"{segment.name} is there with other bytes",
                hint="two nodes may run with one name: stop one of them",
                file_id=segment.file_id,
            ) from None
    _check_stored(segment, data, files)


def _check_stored(segment: Segment, data: bytes, files: ObjectStore) -> None:
    """Every byte of it: once it is REGULAR its rows leave memory, and nobody could write them again."""
    found = files.get(segment.name).data
    if len(found) != len(data):
        said = f"{segment.name} has {len(found)} bytes, and {len(data)} were written"
        raise FileCheckError(said, file_id=segment.file_id, size_bytes=len(found))
    footer_bytes = int.from_bytes(data[-_TAIL_BYTES:-4], "little") + _TAIL_BYTES
    if found[-footer_bytes:] != data[-footer_bytes:]:
        raise FileCheckError(f"the footer of {segment.name} is not what was written", file_id=segment.file_id)
    if found != data:
        raise FileCheckError(f"the rows of {segment.name} are not what was written", file_id=segment.file_id)
    check_footer(segment, pq.read_metadata(pa.BufferReader(data)))


def check_footer(segment: Segment, footer: pq.FileMetaData) -> None:
    """The footer's counts and timestamps equal the truth in memory."""
    place = footer.num_columns - 1  # it was put last; a nested value may have a part of the same name
    said = [footer.row_group(group) for group in range(footer.num_row_groups)]
    statistics = [group.column(place).statistics for group in said]
    found = (
        tuple(group.num_rows for group in said),
        min((each.min for each in statistics), default=None),
        max((each.max for each in statistics), default=None),
    )
    known = (tuple(block.visible_size for block in segment.blocks), segment.min_timestamp, segment.max_timestamp)
    if found != known:
        raise FileCheckError(
            f"the footer of {segment.name} says {found}, and the buffer knows {known}",
            hint="rows, least and greatest commit timestamp by row group",
            file_id=segment.file_id,
        )
