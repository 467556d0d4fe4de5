"""The list of a batch: which files are copied together. A Parquet file, so that anybody can look into it."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.kernel.errors import CorruptError
from headwater.sync.plan.model import PlannedFile

VERSION = b"1"
_VERSION_KEY = b"headwater.sync.batch"

SCHEMA = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("destination", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("is_present", pa.bool_(), nullable=False),
        pa.field("must_read", pa.bool_(), nullable=False),
    ],
    metadata={_VERSION_KEY: VERSION},
)


def encode_batch(files: Sequence[PlannedFile]) -> bytes:
    """The bytes of a list."""
    columns = [[getattr(each, name) for each in files] for name in SCHEMA.names]
    sink = io.BytesIO()
    pq.write_table(pa.table(columns, schema=SCHEMA), sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def decode_batch(data: bytes, location: str) -> tuple[PlannedFile, ...]:
    """The files of a list; one that is damaged, or of a newer version, is refused."""
    try:
        table = pq.read_table(io.BytesIO(data), page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise CorruptError(f"{location} is not a list of files to copy: {error}", path=location) from error
    version = (table.schema.metadata or {}).get(_VERSION_KEY)
    if version != VERSION or table.schema.names != SCHEMA.names:
        raise CorruptError(
            f"{location} is a list of version {version!r}",
            hint="a newer Headwater wrote it: sync with that one",
            path=location,
        )
    return tuple(PlannedFile(**row) for row in table.to_pylist())
