"""The rows of the benches of ingest, as both sides get them, and what must be there in the end.

A batch is what a change stream brings: nine rows of ten replace a key that is there, at random; one is a new key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("k", pa.int32()),
        pa.field("v", pa.float64()),
        pa.field("name", pa.large_string()),
    ]
)
NEW_SHARE = 0.1
LOADED_TOGETHER = 100_000
_NAMES = pa.array([f"name-{number}" for number in range(5000)], pa.large_string())


@dataclass(frozen=True)
class Batch:
    """Rows with different keys, and which of the keys were there before."""

    rows: pa.RecordBatch
    is_known: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return int(self.rows.num_rows)


def rows_of(ids: npt.NDArray[np.int64], version: int) -> pa.RecordBatch:
    """A row for each id; the version shows in its value."""
    columns = [
        pa.array(ids),
        pa.array(((ids * 2654435761 + version) % 1000).astype(np.int32)),
        pa.array(ids + version / 1024),
        _NAMES.take(pa.array((ids + version) % len(_NAMES))),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def loaded(keys: int) -> Iterator[pa.RecordBatch]:
    """The rows that are there at first."""
    for start in range(0, keys, LOADED_TOGETHER):
        yield rows_of(np.arange(start, min(start + LOADED_TOGETHER, keys), dtype=np.int64), 0)


class Changes:
    """Batches on so many keys, each with other rows, and the sum of all values that one side must have in the end."""

    def __init__(self, keys: int, seed: int = 7) -> None:
        self._random = np.random.default_rng(seed)
        self._keys, self._next, self._version = keys, keys, 0

    def batch(self, size: int) -> Batch:
        """The next changes."""
        self._version += 1
        fresh = int(size * NEW_SHARE)
        known = self._random.choice(self._keys, size - fresh, replace=False, shuffle=False)
        ids = np.concatenate([known, np.arange(self._next, self._next + fresh)])
        self._next += fresh
        order = self._random.permutation(size)
        return Batch(rows_of(ids[order], self._version), (ids < self._keys)[order])


class Expected:
    """What one side must hold, by an array of values."""

    def __init__(self, keys: int) -> None:
        self._values = np.full(2 * keys + 4_000_000, np.nan)
        self._values[:keys] = np.arange(keys)

    def add(self, batch: Batch) -> None:
        """The side got these rows."""
        self._values[batch.rows.column("id").to_numpy()] = batch.rows.column("v").to_numpy()

    def check(self, count: int, total: float) -> None:
        """The side holds what it got, or its figures say nothing."""
        there = self._values[~np.isnan(self._values)]
        assert count == len(there), (count, len(there))
        assert np.isclose(total, there.sum(), rtol=1e-9), (total, there.sum())
