"""The primary index: for each key its newest version, and behind it what it replaced.

Promise: a call's versions appear together or not at all, for readers in any thread and after the death of the process.
What `flush` returned for survives the death of the machine.

Invariants:

    1  Within a key time never goes back. The same timestamp may come again: a later sequence within it.
    2  What a call replaces becomes history in the same commit, versions of the same timestamp too: after a crash a
       replay must find every row that a key ever had and that may be live in its baseline (hazard I1).
    3  A row id identifies a version, because it is never given twice. What a caller resolved is compared by it, inside
       the transaction that writes, with what the index holds there: read in it, or read before when no commit since
       then touched the keys of their stream. A key belongs to one stream, for ever.
    4  Numbers of chunks are never given twice, so that a reference to pruned history finds nothing, and never the
       versions of another key.
    5  `prune(below)` keeps history that was replaced at or after `below`: a replay begins at its start inclusively.
    6  An index has an incarnation, a ULID made when it was made: another one means that it was rebuilt (hazard I17).

Commit point: the LMDB commit of each call. What a crash after each step leaves behind:

    read what is held      nothing
    history, counter       nothing: they are in the same transaction
    current                nothing
    commit                 the whole call; made again it finds its own versions and changes nothing. A caller that
                           begins anew resolves again, gets new row ids and replaces its own: history has one more
    prune, between parts   history that is not needed, until the next prune

A smaller timestamp than the index holds is refused, not ignored: whoever re-sends is stopped before the index, by the
applied position of the stream. Recovery, which begins below what a surviving index holds, will need its own way in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress, repeat
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from headwater.ingest.index.main import MainIndex
from headwater.ingest.index.primary import codec, decide
from headwater.ingest.index.primary.environment import MAP_BYTES, Environment
from headwater.ingest.index.primary.model import NOTHING, Held, Version, Versions
from headwater.ingest.index.primary.pruning import prune_history, prune_tombstones
from headwater.ingest.keys import Keys, keys_of
from headwater.ingest.model import Bools, Int64s, Locations, Resolved, Stream, Timestamp
from headwater.kernel.clock import Clock
from headwater.kernel.errors import UsageError
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.randomness import Randomness

VisibleFiles = Callable[[Int64s], Bools]
"""Which of these files rows may be found in."""

Decision = Callable[[Held, slice], decide.Change]
"""What becomes of some of a call's keys, given what the index holds of them."""

_NEXT = b"next"
_NO_NUMBERS = np.empty(0, dtype=np.int64)
_NOTHING_RESOLVED = Resolved(
    np.empty(0, dtype=np.bool_), _NO_NUMBERS, _NO_NUMBERS, Locations(_NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS)
)
_WRITTEN_TOGETHER = 1_000


@dataclass(slots=True)
class _Known:
    """Keys of a request as they are stored, and what a read of them found, as of which commit."""

    table_id: int
    stored: codec.StoredKeys
    held: Held | None = None
    commit: int = -1
    owner: Stream | None = None


class PrimaryIndex:
    """The primary index of a node. Safe to share among threads; writers wait for each other."""

    def __init__(self, environment: Environment, main: MainIndex, incarnation: Ulid) -> None:
        self._environment = environment
        self._main = main
        self.incarnation = incarnation
        self._known: WeakKeyDictionary[Keys, _Known] = WeakKeyDictionary()

    @classmethod
    def open(
        cls, path: Path, main: MainIndex, *, clock: Clock, randomness: Randomness, map_bytes: int = MAP_BYTES
    ) -> PrimaryIndex:
        """Open the index in folder `path`, or make a new one there, with an incarnation of its own."""
        environment = Environment(path, map_bytes=map_bytes)
        try:
            with environment.writing() as transaction:
                about = environment.about
                if transaction.get(b"format", db=about) is None:
                    transaction.put(b"format", str(codec.FORMAT).encode(), db=about)
                    transaction.put(b"incarnation", new_ulid(clock, randomness).encode(), db=about)
                    transaction.put(_NEXT, b"0", db=about)
                codec.check_format(transaction.get(b"format", db=about), str(path))
                incarnation = Ulid(transaction.get(b"incarnation", db=about).decode())
            environment.flush()
        except BaseException:
            environment.close()
            raise
        return cls(environment, main, incarnation)

    def resolve_primary(
        self, table_id: int, keys: Keys, visible_files: VisibleFiles, owner: Stream | None = None
    ) -> Resolved:
        """The newest live version of each key, if its row lies in a visible file. Only a failing backend raises.

        Keys that are then written need not be read again when only others wrote meanwhile: `owner` is the stream that
        alone writes them.
        """
        if not len(keys):
            return _NOTHING_RESOLVED
        known = self._about(table_id, keys)
        wanted = known.stored
        with self._environment.reading() as transaction:
            known.held = held = _held(transaction, wanted)
            known.commit, known.owner = transaction.id(), owner
        row_ids, timestamps = wanted.to_batch(held.row_ids), wanted.to_batch(held.timestamps)
        locations = self._main.locate(row_ids)
        return Resolved(_is_visible(locations, visible_files), row_ids, timestamps, locations)

    def refuse_full(self, keys: int) -> None:
        """Raise unless there is room for so many keys, and to undo what was done to them."""
        self._environment.refuse_full(keys)

    def put_primary_entries_only(self, table_id: int, keys: Keys, timestamp: Timestamp, row_ids: Int64s) -> None:
        """Rows become the newest versions of their keys, whatever was there."""
        _check(keys, timestamp, row_ids)
        known = self._about(table_id, keys)
        wanted = known.stored
        rows = wanted.from_batch(row_ids)

        def decision(held: Held, some: slice) -> decide.Change:
            return decide.put(held, timestamp, rows[some], wanted.order[some])

        self._write(table_id, known, timestamp, rows, decision)

    def update_primary_resolved(
        self, table_id: int, keys: Keys, timestamp: Timestamp, resolved: Resolved, row_ids: Int64s
    ) -> None:
        """Rows replace the versions that were resolved; `IndexMovedError` when those are no longer there."""
        _check(keys, timestamp, row_ids)
        known = self._about(table_id, keys)
        wanted = known.stored
        seen, rows = _seen(wanted, resolved), wanted.from_batch(row_ids)

        def decision(held: Held, some: slice) -> decide.Change:
            return decide.update(held, timestamp, seen.take(some), rows[some], wanted.order[some])

        self._write(table_id, known, timestamp, rows, decision)

    def tombstone_primary_resolved(self, table_id: int, keys: Keys, timestamp: Timestamp, resolved: Resolved) -> None:
        """The rows that were resolved are deleted, orphans too; `IndexMovedError` when other rows are there."""
        _check(keys, timestamp, np.zeros(len(keys), dtype=np.int64))
        known = self._about(table_id, keys)
        wanted, nobody = known.stored, np.full(len(keys), NOTHING, dtype=np.int64)
        seen = _seen(wanted, resolved)

        def decision(held: Held, some: slice) -> decide.Change:
            return decide.tombstone(held, timestamp, seen.take(some), wanted.order[some])

        self._write(table_id, known, timestamp, nobody, decision)

    def restore_primary_entries(self, table_id: int, keys: Keys, resolved: Resolved, timestamp: Timestamp) -> None:
        """Take back what was written at `timestamp` since `resolved` was read, for each of the keys."""
        wanted = self._about(table_id, keys).stored
        seen = _seen(wanted, resolved)
        with self._environment.writing() as transaction:
            before = held = _held(transaction, wanted)
            while not (is_restored := decide.is_restored(held, timestamp, seen, wanted.order)).all():
                held = self._without_newest(transaction, table_id, held, ~is_restored)
            is_changed = (held.timestamps != before.timestamps) | (held.row_ids != before.row_ids)
            _store(transaction, wanted, held, is_changed)

    def versions_of(self, table_id: int, keys: Keys) -> Versions:
        """Every version of these keys that is kept, dead or alive."""
        wanted = self._about(table_id, keys).stored
        found = list[tuple[Int64s, Held]]()
        with self._environment.reading() as transaction:
            held = _held(transaction, wanted)
            places = wanted.order
            while (is_there := held.timestamps != NOTHING).any():
                places, held = places[is_there], held.take(is_there)
                found.append((places, held))
                held = self._without_newest(transaction, table_id, held, np.ones(len(held), dtype=np.bool_))
        all_places = np.concatenate([np.empty(0, np.int64), *(places for places, _ in found)])
        order = np.argsort(all_places, kind="stable")
        timestamps = np.concatenate([np.empty(0, np.int64), *(each.timestamps for _, each in found)])
        row_ids = np.concatenate([np.empty(0, np.int64), *(each.row_ids for _, each in found)])
        return Versions(all_places[order], timestamps[order], row_ids[order])

    def versions(self, table_id: int, key: bytes) -> tuple[Version, ...]:
        """The versions of one key, newest first."""
        found = self.versions_of(table_id, keys_of([key]))
        pairs = zip(found.timestamps.tolist(), found.row_ids.tolist(), strict=True)
        return tuple(Version(timestamp, None if row_id == NOTHING else row_id) for timestamp, row_id in pairs)

    def prune(self, table_id: int, below: Timestamp) -> int:
        """Forget history that was replaced before `below`, and keys deleted before it; says how many entries went.

        In parts, so that writers wait for one part at most.
        """
        return prune_history(self._environment, table_id, below) + prune_tombstones(self._environment, table_id, below)

    def flush(self) -> None:
        """Everything up to here survives the death of the machine. Belongs to `index_flushed` (hazard I17)."""
        self._environment.flush()

    def close(self) -> None:
        """Flush and close."""
        self._environment.close()

    def _about(self, table_id: int, keys: Keys) -> _Known:
        """What is known of a request's keys. It asks several times with the same, so that things are done once."""
        known = self._known.get(keys)
        if known is None or known.table_id != table_id:
            known = self._known[keys] = _Known(table_id, codec.stored(table_id, keys))
        return known

    def _write(self, table_id: int, known: _Known, timestamp: Timestamp, row_ids: Int64s, decision: Decision) -> None:
        """All that a decision says, in one transaction; some keys at a time, so that what was read is still at hand."""
        wanted = known.stored
        with self._environment.writing(known.owner) as transaction:
            # When no commit touched these keys since they were read, what was read is what is held.
            read = known.held if self._environment.is_unchanged(known.owner, known.commit) else None
            for start in range(0, len(wanted.keys), _WRITTEN_TOGETHER):
                some = slice(start, start + _WRITTEN_TOGETHER)
                part = wanted.part(some)
                held = _held(transaction, part) if read is None else read.take(some)
                self._write_part(transaction, table_id, part, held, timestamp, row_ids[some], decision(held, some))

    def _write_part(
        self,
        transaction: Any,
        table_id: int,
        wanted: codec.StoredKeys,
        held: Held,
        timestamp: Timestamp,
        row_ids: Int64s,
        change: decide.Change,
    ) -> None:
        if not change.is_written.any():
            return
        about, replaced = self._environment.about, held.take(change.is_replaced)
        number = int(transaction.get(_NEXT, db=about))
        chunks = codec.history_chunks(table_id, number, timestamp, replaced)
        older = np.full(len(held), NOTHING, dtype=np.int64)
        older[change.is_replaced] = np.arange(len(replaced)) + number * codec.CHUNK_RECORDS
        transaction.cursor(self._environment.history).putmulti(chunks)
        new = Held(np.full(len(held), timestamp, dtype=np.int64), row_ids, older)
        _store(transaction, wanted, new, change.is_written)
        deleted = change.is_written & (row_ids == NOTHING)
        if deleted.any():
            gone = list(compress(wanted.keys, deleted.tolist()))
            entries = codec.tombstone_entries(table_id, timestamp, number, gone)
            transaction.cursor(self._environment.tombstones).putmulti(list(entries))
        # What is deleted is also replaced, so that there are chunks, and entries of tombstones have fresh numbers, too.
        if chunks:
            transaction.put(_NEXT, str(number + len(chunks)).encode(), db=about)

    def _without_newest(self, transaction: Any, table_id: int, held: Held, chosen: Bools) -> Held:
        """What the chosen keys held before; nothing where history is pruned or there never was any."""
        timestamps, row_ids, older = held.timestamps.copy(), held.row_ids.copy(), held.older.copy()
        timestamps[chosen], row_ids[chosen], older[chosen] = NOTHING, NOTHING, NOTHING
        places = np.flatnonzero(chosen & (held.older != NOTHING))
        numbers = held.older[places]
        for chunk in np.unique(numbers // codec.CHUNK_RECORDS).tolist():
            value = transaction.get(codec.history_key(table_id, chunk), db=self._environment.history)
            if value is None:
                continue
            here = numbers // codec.CHUNK_RECORDS == chunk
            _, records = codec.decode_chunk(value)
            found = records.take(numbers[here] % codec.CHUNK_RECORDS)
            timestamps[places[here]], row_ids[places[here]] = found.timestamps, found.row_ids
            older[places[here]] = found.older
        return Held(timestamps, row_ids, older)


def _held(transaction: Any, wanted: codec.StoredKeys) -> Held:
    return codec.decode_held(map(transaction.get, wanted.keys, repeat(codec.ABSENT)))


def _store(transaction: Any, wanted: codec.StoredKeys, held: Held, chosen: Bools) -> None:
    places = np.flatnonzero(chosen)
    is_gone = held.timestamps[places] == NOTHING
    for place in places[is_gone].tolist():
        transaction.delete(wanted.keys[place])
    kept = places[~is_gone]
    keys = wanted.keys if len(kept) == len(wanted.keys) else list(map(wanted.keys.__getitem__, kept.tolist()))
    transaction.cursor().putmulti(list(zip(keys, codec.encode_held(held.take(kept)), strict=True)))


def _is_visible(locations: Locations, visible_files: VisibleFiles) -> Bools:
    is_known = locations.file_ids != NOTHING
    files, places = np.unique(locations.file_ids[is_known], return_inverse=True)
    is_found = np.zeros(len(locations), dtype=np.bool_)
    if len(files):
        is_found[is_known] = np.asarray(visible_files(files), dtype=np.bool_)[places]
    return is_found


def _seen(wanted: codec.StoredKeys, resolved: Resolved) -> Held:
    if len(resolved.row_ids) != len(wanted.keys):
        raise UsageError(
            f"{len(wanted.keys)} keys and {len(resolved.row_ids)} resolved versions", hint="resolve these very keys"
        )
    row_ids = wanted.from_batch(resolved.row_ids)
    return Held(wanted.from_batch(resolved.timestamps), row_ids, np.full_like(row_ids, NOTHING))


def _check(keys: Keys, timestamp: Timestamp, row_ids: Int64s) -> None:
    if timestamp < 1:
        raise UsageError(f"{timestamp} is no timestamp", hint="timestamps begin at 1", timestamp=timestamp)
    if len(row_ids) != len(keys):
        raise UsageError(f"{len(keys)} keys and {len(row_ids)} row ids", hint="each key has one row")
    if (row_ids < 0).any():
        raise UsageError("a row id is below 0", hint="row ids come from the main index's allocate")
