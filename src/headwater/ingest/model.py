"""What the parts of a node speak about: streams, locations, positions, the shape of a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Timestamp: TypeAlias = int
"""A position in the source's history; 0 is before everything."""

MAXIMUM_TIMESTAMP = 2**63 - 2
"""One past it, where the high watermark stands then, must still fit a column."""

Int64s: TypeAlias = npt.NDArray[np.int64]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
Bools: TypeAlias = npt.NDArray[np.bool_]

TIMESTAMP_COLUMN = "_headwater_commit_ts"
"""The hidden column of every data file: when its row was committed."""

TABLE_MARK = b"headwater.table"
"""The key in the schema of a scan under which the table's UUID is."""

TIMESTAMP_FIELD_ID = 2_147_480_001
"""Its Iceberg field id: in no table's schema, so that engines leave it out."""


@dataclass(frozen=True, slots=True, order=True)
class Stream:
    """What is written in one order: a table's rows of one virtual node."""

    table_id: int
    virtual_node: int

    def __str__(self) -> str:
        return f"{self.table_id}/{self.virtual_node}"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """How far a stream has been applied: a timestamp, and the sequence within it."""

    timestamp: Timestamp
    sequence: int


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table as the node takes it. Fields carry their Iceberg ids (`PARQUET:field_id`).

    `folder` is where its files are in the node's store; the file table knows it as `path_id`. `uuid` tells it from
    another table that gets its name.
    """

    id: int
    name: str
    schema: pa.Schema
    key: tuple[str, ...]
    path_id: int
    folder: str
    version: int = 1
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows that lie one after the other, by id and by place."""

    first_row_id: int
    count: int
    file_id: int
    row_group: int
    first_offset: int

    @property
    def last_row_id(self) -> int:
        """The id of its last row."""
        return self.first_row_id + self.count - 1


@dataclass(frozen=True, slots=True)
class Locations:
    """Where rows are, as columns."""

    file_ids: Int64s
    row_groups: Int64s
    offsets: Int64s

    def __len__(self) -> int:
        return len(self.file_ids)


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the primary index knows of a batch of keys: the newest live version of each, or none.

    `is_found` is false for keys that are missing, tombstoned, or whose row lies in a file that is not visible
    (orphans). `timestamps` and `row_ids` say what the index held, orphans and tombstones too (-1: nothing), so that it
    can be put back; `row_ids` is -1 for a tombstone. `locations` is meaningful where `is_found`.
    """

    is_found: Bools
    row_ids: Int64s
    timestamps: Int64s
    locations: Locations = field(repr=False)
