"""Both indexes of a node as the orders of application call them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.ingest.index.main import MainIndex
from headwater.ingest.index.primary import PrimaryIndex
from headwater.ingest.keys import Keys
from headwater.ingest.model import Bools, Int64s, Resolved, RowRange, Stream, Timestamp


@dataclass(frozen=True, slots=True)
class LocalIndex:
    """The staged calls. Each is whole or without effect; a failing backend is the only reason to raise."""

    primary: PrimaryIndex
    main: MainIndex

    def allocate(self, count: int, stream: Stream) -> int:
        """Row ids that nobody has, for so many rows of a stream: the first."""
        return self.main.allocate(count, stream)

    def resolve_primary(
        self, table_id: int, keys: Keys, visible_files: Callable[[Int64s], Bools], owner: Stream | None = None
    ) -> Resolved:
        """The newest version of each key."""
        return self.primary.resolve_primary(table_id, keys, visible_files, owner)

    def refuse_full(self, keys: int) -> None:
        """Raise unless there is room for so many keys, and to undo what was done to them."""
        self.primary.refuse_full(keys)

    def put_main_index_entries(self, ranges: Sequence[RowRange]) -> None:
        """Where rows are."""
        self.main.put_main_index_entries(ranges)

    def put_primary_entries_only(self, table_id: int, keys: Keys, timestamp: Timestamp, row_ids: Int64s) -> None:
        """Which row each key has from now on."""
        self.primary.put_primary_entries_only(table_id, keys, timestamp, row_ids)

    def tombstone_primary_resolved(self, table_id: int, keys: Keys, timestamp: Timestamp, resolved: Resolved) -> None:
        """Each key has no row from now on."""
        self.primary.tombstone_primary_resolved(table_id, keys, timestamp, resolved)

    def update_primary_resolved(
        self, table_id: int, keys: Keys, timestamp: Timestamp, resolved: Resolved, row_ids: Int64s
    ) -> None:
        """Which row each key has in place of the resolved one."""
        self.primary.update_primary_resolved(table_id, keys, timestamp, resolved, row_ids)

    def delete_main_index_range(self, first_row_id: int, last_row_id: int) -> None:
        """Forget where these rows are."""
        self.main.delete_main_index_range(first_row_id, last_row_id)

    def flush_primary(self) -> None:
        """Make all primary entries durable, before the files of their rows become REGULAR (I17)."""
        self.primary.flush()

    def flush_file(self, file_id: int) -> None:
        """Make the main entries of a file durable."""
        self.main.flush_index_entries_of_file(file_id)

    def close(self) -> None:
        """Let go of the files."""
        self.primary.close()
        self.main.close()
