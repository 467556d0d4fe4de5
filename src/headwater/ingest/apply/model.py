"""What a writer asks for."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headwater.ingest.keys import NO_KEYS, Keys
from headwater.ingest.model import Position, Stream, TableShape, Timestamp
from headwater.kernel.errors import RefusedError, UsageError


class BadRequestError(UsageError):
    """The request is wrong, and nothing of it was done."""


class WrongNodeError(RefusedError):
    """The virtual node lives elsewhere; nothing was done."""


class BackInTimeError(RefusedError):
    """A key has a version that is younger than the request; nothing was done."""


@dataclass(frozen=True, slots=True)
class TableUpdate:
    """Changes of one table's rows of one virtual node, as they came.

    `deletes` are keys, `inserts` and `updates` whole rows. A replace is a key in `deletes` and its row in `inserts`.
    """

    table: str
    virtual_node: int
    key_timestamp: Timestamp
    deletes: pa.RecordBatch | None = None
    inserts: pa.RecordBatch | None = None
    updates: pa.RecordBatch | None = None


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """What is acknowledged whole, or not at all."""

    position: Position
    updates: tuple[TableUpdate, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows and their keys, each key once."""

    batch: pa.RecordBatch
    keys: Keys

    def __len__(self) -> int:
        return len(self.keys)


NO_ROWS = Rows(pa.RecordBatch.from_arrays([], names=[]), NO_KEYS)
"""What a request without rows brings, whatever the table."""


@dataclass(frozen=True, slots=True)
class StreamChange:
    """A checked change of one stream. No key is in two parts of it, and none twice.

    `deleted` keys end; `replaced` and `updated` rows take the place of what their keys had, by the order of replace
    (DELETE, then INSERT) and by that of UPDATE.
    """

    stream: Stream
    shape: TableShape
    deleted: Keys
    replaced: Rows
    updated: Rows
