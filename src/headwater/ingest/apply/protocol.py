"""Requests become effects on visibility, index and buffer, in an order that readers cannot catch half way.

Promise: when `apply` returns, every effect of the request is complete, and only then may its transaction commit, so
that the high watermark passes it. When it raises, each key of the request is either as it was, or gone, or new, and
readers, index and flush agree on which; sending the request again makes it whole. What can be refused is refused before
the first effect. When not even that can be made true the node fails, and takes nothing more.

Within a stream, one request at a time; all keys of a request, of all its streams, are resolved before its first effect,
and there is room in the index for all of them:

    DELETE    resolve → visibility delete → tombstone
    INSERT    append pending → main index → primary → publish visible
    replace   DELETE, then INSERT, at the same timestamp
    UPDATE    resolve → append pending → main index → visibility delete → primary → publish visible

A replace writes no tombstone, because the entry of the new row at the same timestamp takes its place; its compensation
does. An INSERT of a key that is there replaces it: a key has one row.

| it fails at | what is done | what is true then |
|---|---|---|
| resolve | nothing | all is as it was |
| visibility delete, tombstone (DELETE, replace) | the delete is made whole | the old row is gone |
| append, main index, primary (INSERT) | new rows hidden, entries removed, keys end | neither old nor new row is there |
| append, main index (UPDATE) | new rows hidden, entries removed | the old row is there |
| visibility delete, primary (UPDATE) | new rows hidden, entries removed, keys end | neither is there |
| publish visible | the node fails | nothing is answered |
| any of these repairs | the node fails | nothing is answered |

A request at or below the applied position of its stream was applied before, and is acknowledged without effect (I10).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Protocol

import numpy as np

from headwater.ingest.apply.decide import changes, is_applied
from headwater.ingest.apply.model import BackInTimeError, Rows, StreamChange, UpdateRequest
from headwater.ingest.buffer.buffers import Buffers
from headwater.ingest.buffer.model import AppendHandle
from headwater.ingest.buffer.stream import Outcome, StreamBuffer
from headwater.ingest.keys import Keys
from headwater.ingest.lifecycle import Lifecycle, NodeFailedError
from headwater.ingest.model import (
    Bools,
    Int64s,
    Locations,
    Position,
    Resolved,
    RowRange,
    Stream,
    TableShape,
    Timestamp,
)
from headwater.ingest.visibility.index import VisibilityIndex, delete_rows


class LocalIndex(Protocol):
    """The staged calls of the index; each is whole or without effect, and raises when its backend fails."""

    def allocate(self, count: int, stream: Stream) -> int:
        """Row ids that nobody has, for so many rows of a stream: the first."""
        ...

    def resolve_primary(
        self, table_id: int, keys: Keys, visible_files: Callable[[Int64s], Bools], owner: Stream
    ) -> Resolved:
        """The newest version of each key."""
        ...

    def refuse_full(self, keys: int) -> None:
        """Raise unless there is room for so many keys, and to undo what was done to them."""
        ...

    def put_main_index_entries(self, ranges: tuple[RowRange, ...]) -> None:
        """Where rows are."""
        ...

    def put_primary_entries_only(self, table_id: int, keys: Keys, timestamp: Timestamp, row_ids: Int64s) -> None:
        """Which row each key has from now on."""
        ...

    def tombstone_primary_resolved(self, table_id: int, keys: Keys, timestamp: Timestamp, resolved: Resolved) -> None:
        """Each key has no row from now on."""
        ...

    def update_primary_resolved(
        self, table_id: int, keys: Keys, timestamp: Timestamp, resolved: Resolved, row_ids: Int64s
    ) -> None:
        """Which row each key has in place of the resolved one."""
        ...

    def delete_main_index_range(self, first_row_id: int, last_row_id: int) -> None:
        """Forget where these rows are."""
        ...


class Applier:
    """Applies requests: streams side by side, each stream one request at a time. Safe to share among threads."""

    def __init__(
        self,
        *,
        tables: Mapping[str, TableShape],
        virtual_node_count: int,
        owned: frozenset[int],
        index: LocalIndex,
        buffers: Buffers,
        visibility: VisibilityIndex,
        lifecycle: Lifecycle,
    ) -> None:
        self._lifecycle = lifecycle
        self._tables = tables
        self._virtual_node_count = virtual_node_count
        self._owned = owned
        self._index = index
        self._buffers = buffers
        self._visibility = visibility
        self._guard = threading.Lock()
        self._turns: dict[Stream, threading.RLock] = {}
        self._applied: dict[Stream, Position] = {}

    def apply(self, request: UpdateRequest) -> None:
        """Do all that the request asks for."""
        self._lifecycle.refuse_failed()
        wanted = changes(request, self._tables, self._virtual_node_count, self._owned)
        self._buffers.refuse_more()
        with ExitStack() as turns:
            for change in wanted:  # in the order of streams, so that nobody waits in a ring
                turns.enter_context(self.turn(change.stream))
            self._lifecycle.refuse_failed()
            due = [each for each in wanted if not is_applied(request.position, self._applied.get(each.stream))]
            found = [self._resolve(each, request.position.timestamp) for each in due]
            if due:  # what was applied before is acknowledged, whatever there is room for
                self._index.refuse_full(sum(map(_key_count, due)))
            for change, resolved in zip(due, found, strict=True):
                self._apply(change, resolved, request.position.timestamp)
                self._applied[change.stream] = request.position

    def applied(self, stream: Stream) -> Position | None:
        """How far the stream has come."""
        return self._applied.get(stream)

    @contextmanager
    def turn(self, stream: Stream) -> Iterator[None]:
        """For as long as this lasts nobody else writes to the stream."""
        with self._guard:
            lock = self._turns.setdefault(stream, threading.RLock())
        with lock:
            yield

    # One change of one stream.

    def _resolve(self, change: StreamChange, timestamp: Timestamp) -> tuple[Resolved, Resolved, Resolved]:
        """What the deleted, replaced and updated keys have."""
        buffer = self._buffers.add(change.stream, change.shape)
        return (
            self._resolved(buffer, change.deleted, timestamp),
            self._resolved(buffer, change.replaced.keys, timestamp),
            self._resolved(buffer, change.updated.keys, timestamp),
        )

    def _apply(self, change: StreamChange, resolved: tuple[Resolved, Resolved, Resolved], timestamp: Timestamp) -> None:
        buffer = self._buffers.add(change.stream, change.shape)
        deleted, replaced, updated = resolved
        if len(change.deleted):
            with self._or_ended(buffer, change.deleted, timestamp):
                self._delete_visible(buffer, deleted, timestamp)
                self._tombstone(buffer, change.deleted, deleted, timestamp)
        if len(change.replaced):
            with self._or_ended(buffer, change.replaced.keys, timestamp):
                self._delete_visible(buffer, replaced, timestamp)
                self._insert(buffer, change.replaced, timestamp)
        if len(change.updated):
            self._update(buffer, change.updated, updated, timestamp)

    def _resolved(self, buffer: StreamBuffer, keys: Keys, timestamp: Timestamp) -> Resolved:
        """What the keys have, before anything is done; a key never goes back in time."""
        found = self._index.resolve_primary(buffer.shape.id, keys, buffer.visible_files, buffer.stream)
        if (later := np.flatnonzero(found.timestamps > timestamp)).size:
            raise BackInTimeError(
                f"row {later[0]} of {buffer.shape.name} changed at {found.timestamps[later[0]]}, after {timestamp}",
                hint="send the changes of a key in the order of their timestamps",
                timestamp=timestamp,
            )
        return found

    def _insert(self, buffer: StreamBuffer, rows: Rows, timestamp: Timestamp) -> None:
        with self._appended(buffer, rows, timestamp) as handle:
            self._index.put_main_index_entries(handle.ranges)
            self._index.put_primary_entries_only(buffer.shape.id, rows.keys, timestamp, _row_ids(handle))

    def _update(self, buffer: StreamBuffer, rows: Rows, found: Resolved, timestamp: Timestamp) -> None:
        with self._appended(buffer, rows, timestamp) as handle:
            self._index.put_main_index_entries(handle.ranges)
            with self._or_ended(buffer, rows.keys, timestamp):
                self._delete_visible(buffer, found, timestamp)
                self._index.update_primary_resolved(buffer.shape.id, rows.keys, timestamp, found, _row_ids(handle))

    @contextmanager
    def _appended(self, buffer: StreamBuffer, rows: Rows, timestamp: Timestamp) -> Iterator[AppendHandle]:
        """Rows that are published when the block ends, and hidden for good when it fails."""
        handle = buffer.append_pending(rows.batch, timestamp, self._index.allocate(len(rows), buffer.stream))
        try:
            yield handle
        except Exception:
            with self._or_failed():
                buffer.publish_pending_append(handle, Outcome.HIDDEN)
                for each in handle.ranges:
                    self._index.delete_main_index_range(each.first_row_id, each.last_row_id)
            raise
        with self._or_failed():  # whoever is left pending would hold back all that comes after it
            buffer.publish_pending_append(handle, Outcome.VISIBLE)

    @contextmanager
    def _or_ended(self, buffer: StreamBuffer, keys: Keys, timestamp: Timestamp) -> Iterator[None]:
        """When the block fails, whatever these keys have ends: in visibility, then in the index."""
        try:
            yield
        except Exception:
            with self._or_failed():
                found = self._index.resolve_primary(buffer.shape.id, keys, buffer.visible_files, buffer.stream)
                self._delete_visible(buffer, found, timestamp)
                self._tombstone(buffer, keys, found, timestamp)
            raise

    @contextmanager
    def _or_failed(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._lifecycle.fail(error)
            raise NodeFailedError(
                f"what a failed request had begun could not be undone: {error}",
                hint="start the node again",
            ) from error

    def _tombstone(self, buffer: StreamBuffer, keys: Keys, found: Resolved, timestamp: Timestamp) -> None:
        chosen = np.flatnonzero(found.is_found)
        if len(chosen) == len(keys):  # these very keys, of which the index knows already how it stores them
            self._index.tombstone_primary_resolved(buffer.shape.id, keys, timestamp, found)
        elif len(chosen):
            self._index.tombstone_primary_resolved(buffer.shape.id, keys.take(chosen), timestamp, _taken(found, chosen))

    def _delete_visible(self, buffer: StreamBuffer, found: Resolved, timestamp: Timestamp) -> None:
        """Rows that are not REGULAR yet are deleted in their buffer, which hands them over with the file (I18)."""
        gone = _chosen(found.locations, found.is_found)
        if len(gone):
            delete_rows(lambda *place: buffer.visibility_of(*place) or self._visibility.get(*place), gone, timestamp)


def _key_count(change: StreamChange) -> int:
    return len(change.deleted) + len(change.replaced) + len(change.updated)


def _row_ids(handle: AppendHandle) -> Int64s:
    return np.arange(handle.ranges[0].first_row_id, handle.ranges[-1].last_row_id + 1, dtype=np.int64)


def _chosen(rows: Locations, which: Bools) -> Locations:
    return Locations(rows.file_ids[which], rows.row_groups[which], rows.offsets[which])


def _taken(found: Resolved, which: Int64s) -> Resolved:
    rows = found.locations
    return Resolved(
        found.is_found[which],
        found.row_ids[which],
        found.timestamps[which],
        Locations(rows.file_ids[which], rows.row_groups[which], rows.offsets[which]),
    )
