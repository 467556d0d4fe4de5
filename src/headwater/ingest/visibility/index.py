"""Visibility of the files that are admitted: published in the file table and known to the registry.

A row group that is not admitted yet lives with the write buffer, which hands over the very same object: a deletion
that is on its way then hits it wherever it is found. So whoever looks in both places looks in the buffer first; in the
other order a row group could pass from the one to the other between the two looks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from headwater.ingest.model import Locations, Timestamp
from headwater.ingest.visibility.decide import checked_offsets, checked_timestamp, grouped
from headwater.ingest.visibility.model import AdmittedError, NotAdmittedError
from headwater.ingest.visibility.row_group import RowGroupVisibility

Find = Callable[[int, int], RowGroupVisibility | None]
"""Where a row group (file id, row group) is kept, if it is."""


def delete_rows(find: Find, locations: Locations, timestamp: Timestamp) -> None:
    """Delete rows of many files as of `timestamp`. If one of them cannot be, none is."""
    checked_timestamp(timestamp, lowest=1)
    found = []
    for rows in grouped(locations):
        group = find(rows.file_id, rows.row_group)
        if group is None:
            raise NotAdmittedError(rows.file_id, rows.row_group)
        checked_offsets(rows.offsets, group.rows, is_sorted=True)
        found.append((group, rows.offsets))
    for group, offsets in found:
        group.delete(offsets, timestamp, is_sorted=True)


class VisibilityIndex:
    """(file id, row group) to its visibility. Safe to share among threads; readers take no lock."""

    def __init__(self) -> None:
        self._files: Mapping[int, tuple[RowGroupVisibility, ...]] = MappingProxyType({})
        self._writing = threading.Lock()

    def admit(self, file_id: int, groups: Sequence[RowGroupVisibility]) -> None:
        """Take over a file's row groups, the very objects. Again with the same ones changes nothing."""
        with self._writing:
            known = self._files.get(file_id)
            if known is None:
                self._files = MappingProxyType({**self._files, file_id: tuple(groups)})
            elif [id(each) for each in known] != [id(each) for each in groups]:
                raise AdmittedError(file_id)

    def remove(self, file_id: int) -> tuple[RowGroupVisibility, ...]:
        """Let go of a file's row groups, which are returned."""
        with self._writing:
            if file_id not in self._files:
                raise NotAdmittedError(file_id)
            left = dict(self._files)
            gone = left.pop(file_id)
            self._files = MappingProxyType(left)
            return gone

    def get(self, file_id: int, row_group: int) -> RowGroupVisibility | None:
        """The visibility of a row group, or `None` when its file is not admitted or has no such group."""
        groups = self._files.get(file_id, ())
        return groups[row_group] if 0 <= row_group < len(groups) else None

    def groups(self, file_id: int) -> tuple[RowGroupVisibility, ...]:
        """All row groups of an admitted file, in order."""
        groups = self._files.get(file_id)
        if groups is None:
            raise NotAdmittedError(file_id)
        return groups

    def delete(self, locations: Locations, timestamp: Timestamp) -> None:
        """Delete rows of admitted files as of `timestamp`. If one of them cannot be, none is."""
        delete_rows(self.get, locations, timestamp)

    def fold_all(self, up_to: Timestamp) -> int:
        """Raise every base to `up_to`; how many deletions went into them."""
        return sum(group.fold(up_to) for groups in self._files.values() for group in groups)

    def files(self) -> frozenset[int]:
        """The files that are admitted."""
        return frozenset(self._files)

    def pending(self) -> int:
        """How many deletions wait to be folded, in all files."""
        return sum(group.pending for groups in self._files.values() for group in groups)
