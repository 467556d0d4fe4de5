"""Deletes by position: vectors and position delete files read, position delete files (v2) written."""

from __future__ import annotations

import struct
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap64

from headwater.tables.files import FileReader, normalise
from headwater.tables.fitting import fit_columns
from headwater.tables.metrics import split_offsets
from headwater.tables.model import (
    DELETE_FILE_PATH_ID,
    DELETE_FILE_POSITION_ID,
    FileTask,
    NewFile,
    TableCorruptError,
    TableFile,
)
from headwater.tables.parquet_source import ROWS_PER_BATCH, ParquetSource
from headwater.tables.stored_columns import columns_of_file
from headwater.tables.vectors import read_vector

_DELETE_COLUMNS = (
    NestedField(DELETE_FILE_PATH_ID, "file_path", StringType(), required=True),
    NestedField(DELETE_FILE_POSITION_ID, "pos", LongType(), required=True),
)
_DELETE_SCHEMA = schema_to_pyarrow(Schema(*_DELETE_COLUMNS))


def deleted_positions(files: FileReader, task: FileTask) -> BitMap64:
    """Positions of the task's data file that its vector and its position delete files delete."""
    found = BitMap64() if task.vector is None else read_vector(files, task.vector)
    wanted = normalise(task.file.file_path)
    for each in task.positions:
        found |= _positions_in(files, each, wanted)
    if found and found.max() >= task.file.record_count:
        raise TableCorruptError(
            task.file.file_path, f"has {task.file.record_count} rows, and a delete of the row at {found.max()}"
        )
    return found


def _positions_in(files: FileReader, deletes: TableFile, wanted: str) -> BitMap64:
    """What a position delete file says of one data file; it may speak of many."""
    by_name = [
        MappedField.model_validate({"field-id": each.field_id, "names": [each.name]}) for each in _DELETE_COLUMNS
    ]
    source = ParquetSource(files, deletes, by_name)
    fitting = columns_of_file(deletes.file_path, source.names, {})
    found = BitMap64()
    for _, batch in source.batches(_DELETE_COLUMNS, ROWS_PER_BATCH):
        paths, positions = fit_columns(batch, _DELETE_COLUMNS, fitting)
        spellings = [each for each in pc.unique(paths).to_pylist() if normalise(each) == wanted]
        chosen = positions.filter(pc.is_in(paths, value_set=pa.array(spellings, paths.type)))
        found |= BitMap64(chosen.to_numpy().astype(np.uint64))
    return found


def position_delete_file(location: str, positions: BitMap64, data_file: TableFile) -> tuple[TableFile, NewFile]:
    """A position delete file (v2) about one data file. The bounds of the path are whole: it is found by them."""
    path = data_file.file_path
    paths = pa.repeat(pa.scalar(path, pa.large_string()), len(positions))
    table = pa.table([paths, pa.array(positions.to_array(), pa.int64())], schema=_DELETE_SCHEMA)
    buffer = pa.BufferOutputStream()
    footers: list[pq.FileMetaData] = []
    with pq.ParquetWriter(
        buffer,
        _DELETE_SCHEMA,
        compression="zstd",
        store_schema=False,
        write_page_checksum=True,
        metadata_collector=footers,
    ) as writer:
        writer.write_table(table)
    data, groups = buffer.getvalue().to_pybytes(), range(footers[0].num_row_groups)
    ids = (DELETE_FILE_PATH_ID, DELETE_FILE_POSITION_ID)
    encoded = path.encode()
    entry = TableFile.from_args(
        _table_format_version=3,
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=data_file.partition,
        record_count=len(positions),
        file_size_in_bytes=len(data),
        column_sizes={
            field_id: sum(footers[0].row_group(each).column(place).total_compressed_size for each in groups)
            for place, field_id in enumerate(ids)
        },
        value_counts=dict.fromkeys(ids, len(positions)),
        null_value_counts=dict.fromkeys(ids, 0),
        lower_bounds=dict(zip(ids, (encoded, struct.pack("<q", positions.min())), strict=True)),
        upper_bounds=dict(zip(ids, (encoded, struct.pack("<q", positions.max())), strict=True)),
        split_offsets=split_offsets(footers[0]),
        referenced_data_file=path,
    )
    entry.spec_id = data_file.spec_id
    return cast(TableFile, entry), NewFile(location, data)
