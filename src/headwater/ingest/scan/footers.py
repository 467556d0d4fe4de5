"""Footers of files that were read before: a file never changes, so neither does its footer."""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow.parquet as pq

_MOST_FOOTERS = 256


class Footers:
    """The footers of the files that were read last, by file id. Safe to share among threads."""

    def __init__(self, most: int = _MOST_FOOTERS) -> None:
        self._most = most
        self._by_file: OrderedDict[int, pq.FileMetaData] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, file_id: int) -> pq.FileMetaData | None:
        """The footer, if it is kept."""
        with self._lock:
            if file_id in self._by_file:
                self._by_file.move_to_end(file_id)
            return self._by_file.get(file_id)

    def keep(self, file_id: int, footer: pq.FileMetaData) -> None:
        """Keep it, and let the one go that was not asked for the longest."""
        with self._lock:
            self._by_file[file_id] = footer
            self._by_file.move_to_end(file_id)
            while len(self._by_file) > self._most:
                self._by_file.popitem(last=False)
