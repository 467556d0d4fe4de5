"""Footers of files that were read before: a file never changes, so neither does its footer."""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow.parquet as pq

from headwater.ingest.scan.decide import places_of

_MOST_FOOTERS = 256


class Footer:
    """A footer, and what it says of columns that were asked for, taken out of it once."""

    def __init__(self, metadata: pq.FileMetaData) -> None:
        self.metadata = metadata
        self._places = places_of(metadata)
        self._found: dict[tuple[int, str], pq.ColumnChunkMetaData] = {}

    def column(self, group: int, name: str) -> pq.ColumnChunkMetaData | None:
        """A column of a row group, if there is one that is not nested."""
        place = self._places.get(name)
        if place is None:
            return None
        if (group, name) not in self._found:
            self._found[group, name] = self.metadata.row_group(group).column(place)
        return self._found[group, name]


class Footers:
    """The footers of the files that were read last, by file id. Safe to share among threads."""

    def __init__(self, most: int = _MOST_FOOTERS) -> None:
        self._most = most
        self._by_file: OrderedDict[int, Footer] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, file_id: int) -> Footer | None:
        """The footer, if it is kept."""
        with self._lock:
            if file_id in self._by_file:
                self._by_file.move_to_end(file_id)
            return self._by_file.get(file_id)

    def keep(self, file_id: int, footer: Footer) -> None:
        """Keep it, and let the one go that was not asked for the longest."""
        with self._lock:
            self._by_file[file_id] = footer
            self._by_file.move_to_end(file_id)
            while len(self._by_file) > self._most:
                self._by_file.popitem(last=False)
