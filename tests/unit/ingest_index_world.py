"""Both indexes in a folder, and plain words for what tests do to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headwater.ingest.index import MainIndex, PrimaryIndex
from headwater.ingest.keys import Keys, keys_of
from headwater.ingest.model import Bools, Int64s, Resolved, RowRange
from headwater.kernel.clock import SystemClock
from headwater.kernel.randomness import system_randomness

TABLE, FILE = 7, 70


def everything(files: Int64s) -> Bools:
    return np.ones(len(files), dtype=np.bool_)


def nothing(files: Int64s) -> Bools:
    return np.zeros(len(files), dtype=np.bool_)


def ids(*numbers: int) -> Int64s:
    return np.array(numbers, dtype=np.int64)


@dataclass
class World:
    folder: Path
    main: MainIndex
    primary: PrimaryIndex

    @classmethod
    def open(cls, folder: Path, map_bytes: int = 2**30) -> World:
        main = MainIndex.open(folder / "main.db")
        made = {"clock": SystemClock(), "randomness": system_randomness()}
        primary = PrimaryIndex.open(folder / "primary", main, map_bytes=map_bytes, **made)  # type: ignore[arg-type]
        return cls(folder, main, primary)

    def close(self) -> None:
        self.primary.close()
        self.main.close()

    def reopened(self) -> World:
        self.close()
        return World.open(self.folder)

    def rows(self, count: int, file_id: int = FILE) -> Int64s:
        """So many new rows with places in a file."""
        first = self.main.allocate(count)
        self.main.put_main_index_entries([RowRange(first, count, file_id, 0, first)])
        return np.arange(first, first + count, dtype=np.int64)

    def put(self, names: Iterable[str], timestamp: int, file_id: int = FILE) -> Int64s:
        keys = named(names)
        rows = self.rows(len(keys), file_id)
        self.primary.put_primary_entries_only(TABLE, keys, timestamp, rows)
        return rows

    def resolve(self, names: Iterable[str]) -> Resolved:
        return self.primary.resolve_primary(TABLE, named(names), everything)

    def delete(self, names: Iterable[str], timestamp: int) -> Resolved:
        keys = named(names)
        resolved = self.primary.resolve_primary(TABLE, keys, everything)
        self.primary.tombstone_primary_resolved(TABLE, keys, timestamp, resolved)
        return resolved

    def versions(self, name: str) -> list[tuple[int, int | None]]:
        return [(each.timestamp, each.row_id) for each in self.primary.versions(TABLE, name.encode())]


def named(names: Iterable[str]) -> Keys:
    return keys_of([name.encode() for name in names])
