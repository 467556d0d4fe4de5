"""Pins: how a reader keeps one object from the collector for a while (hazards S4, S7, S9).

All pins of an object stand in one record, changed by compare-and-swap.

    ask      add the pin to the record, not granted
    check    read the boundary after that: below the id, nobody has collected it, and whoever advances from now on
             reads records afterwards and sees ours. At or past it, only another granted pin in the record that was
             swapped, still not ended after the swap, proves that every collector so far had to keep the object.
    grant    mark it; this does not move its end

A crash after any step leaves a pin that keeps an object until it expires: excess only. A record is removed by the
collector alone, once the boundary covers its id and none of its pins counts: then no pin of it can be granted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from headwater.kernel.errors import UsageError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.ids import Ulid, new_ulid
from headwater.sequence.codec import decode_pin_record, encode_pin_record, id_of_record, pin_record_path
from headwater.sequence.decide import is_active, may_grant
from headwater.sequence.history import History
from headwater.sequence.model import Entry, HeldPin, Pin, PinLostError, PinRecord, Retention
from headwater.storage.errors import ObjectNotFoundError, PreconditionFailedError, StorageOutcomeUnknownError
from headwater.storage.port import Create, ObjectMeta, Update

LONGEST_TTL = timedelta(days=366)


class Pins:
    """The pins of one namespace."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._store = history.store
        self._namespace = history.namespace
        self._clock = history.clock
        # What was put here last, by id: whether that is still there, the condition of the next put tells.
        self._put: dict[int, tuple[PinRecord, str]] = {}

    def pin(self, entry: Entry, *, ttl: timedelta, holder: str) -> HeldPin:
        """Keep `entry` for `ttl`; `PinLostError` when it may have been collected already."""
        return self._pin(entry.id, entry.writer, ttl, holder)

    def renew(self, held: HeldPin, *, ttl: timedelta) -> HeldPin:
        """A new pin for the same object, for which the old one vouches while it lasts; the old one is released.

        The old pin is never extended in place: one that was extended too late would still look granted.
        """
        renewed = self._pin(held.id, held.writer, ttl, held.pin.holder)
        self.release(held)
        return renewed

    def release(self, held: HeldPin) -> None:
        """The object is no longer needed."""
        self._swap(held.id, lambda record: record.without(held.pin.pin) if record and _has(record, held) else record)

    def records(self) -> tuple[PinRecord, ...]:
        """Every record that is there; one that cannot be read is an error."""
        found = (self._read(id_of_record(meta.path, self._namespace))[0] for meta in self._listed())
        return tuple(record for record in found if record is not None)

    def pinned(self, now: datetime, retention: Retention) -> frozenset[int]:
        """The ids that a collector must leave alone. A record that is listed but gone counts: it was there."""
        pinned = set()
        for meta in self._listed():
            number = id_of_record(meta.path, self._namespace)
            record, _ = self._read(number)
            if record is None or is_active(record, now, retention):
                pinned.add(number)
        return frozenset(pinned)

    def drop_ended(self, boundary: int, now: datetime, retention: Retention) -> None:
        """Remove the records behind the boundary in which no pin counts any more."""
        for record in self.records():
            if record.id <= boundary and not is_active(record, now, retention):
                self._store.delete(pin_record_path(self._namespace, record.id))

    def _pin(self, number: int, writer: Ulid, ttl: timedelta, holder: str) -> HeldPin:
        if not timedelta(0) < ttl <= LONGEST_TTL:
            raise UsageError(f"a pin lives longer than nothing and at most {LONGEST_TTL.days} days, not {ttl}")
        asked = Pin(
            new_ulid(self._clock, self._history.randomness), holder, granted=False, expires_at=self._clock.now() + ttl
        )
        held = HeldPin(number, writer, asked)
        record = self._add(held)
        hit(Failpoint.PIN_AFTER_ASK)
        boundary = self._history.boundary.read()
        if not may_grant(asked.pin, record, boundary, self._clock.now()):
            self.release(held)
            raise self._lost(held, "may have been collected")
        hit(Failpoint.PIN_AFTER_CHECK)
        granted = replace(held, pin=replace(asked, granted=True))
        self._grant(granted)
        if self._clock.now() >= asked.expires_at:
            raise self._lost(held, "expired while it was asked for")
        return granted

    def _add(self, held: HeldPin) -> PinRecord:
        def add(record: PinRecord | None) -> PinRecord:
            if record is None:
                return PinRecord(held.id, held.writer, (held.pin,))
            if record.writer != held.writer:
                raise self._lost(held, "is another writer's")
            return record if _has(record, held) else record.with_pin(held.pin)

        # Most often nobody else pins it, and to find out otherwise costs no more than to look first.
        record = self._swap(held.id, add, guess=(None, None))
        assert record is not None  # `add` never removes
        return record

    def _grant(self, held: HeldPin) -> None:
        def grant(record: PinRecord | None) -> PinRecord:
            if record is None or not _has(record, held):
                raise self._lost(held, "is gone")
            return record if held.pin in record.pins else record.with_pin(held.pin)

        self._swap(held.id, grant)

    def _swap(
        self,
        number: int,
        change: Callable[[PinRecord | None], PinRecord | None],
        *,
        guess: tuple[PinRecord | None, str | None] | None = None,
    ) -> PinRecord | None:
        """Change the record against whoever else does. Changes say what is to be so, and may be asked for again.

        The first try goes by what was put here last, or by a guess: the condition of the put tells if that is wrong.
        """
        path = pin_record_path(self._namespace, number)
        patience = self._history.retry.patience()
        known = self._put.pop(number, guess)
        while True:
            record, etag = known or self._read(number)
            wanted = change(record)
            if wanted is None or wanted == record:
                return record
            # A put whose answer was lost may land later. It must find nothing that looks like what it was made for.
            attempt = replace(wanted, attempt=new_ulid(self._clock, self._history.randomness))
            try:
                put = self._store.put(path, encode_pin_record(attempt), Update(etag) if etag else Create())
            except (PreconditionFailedError, StorageOutcomeUnknownError):
                known = None
                # Losing to somebody else is progress. Losing to nobody, or hearing nothing, must have an end.
                if self._read(number)[1] == etag and not patience.wait():
                    raise
            else:
                self._put[number] = (attempt, put)
                return wanted

    def _listed(self) -> Iterator[ObjectMeta]:
        return self._store.list(self._namespace.pins_folder)

    def _read(self, number: int) -> tuple[PinRecord | None, str | None]:
        path = pin_record_path(self._namespace, number)
        try:
            fetched = self._store.get(path)
        except ObjectNotFoundError:
            return None, None
        return decode_pin_record(fetched.data, path), fetched.meta.etag

    def _lost(self, held: HeldPin, why: str) -> PinLostError:
        path = self._namespace.path_of(held.id)
        return PinLostError(f"{path} cannot be kept: it {why}", hint="read the latest entry and pin that", path=path)


def _has(record: PinRecord, held: HeldPin) -> bool:
    return any(pin.pin == held.pin.pin for pin in record.pins)
