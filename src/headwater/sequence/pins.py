"""Pins: how a reader keeps one object from the collector for a while (hazards S4, S7).

    ask      write the pin, not granted
    check    read the boundary after that: below the id, nobody has collected it, and whoever advances from now
             on reads pins afterwards and sees ours. At or past it, only another granted pin, seen after our own
             was written, proves that no collector can have taken the object between the two.
    grant    mark it

A crash after any step leaves a pin that keeps an object, or nothing, until it expires: excess only.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from headwater.kernel.errors import UsageError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.ids import Ulid, new_ulid
from headwater.sequence.codec import decode_pin, encode_pin, pin_path
from headwater.sequence.decide import may_grant
from headwater.sequence.model import ID_DIGITS, Entry, Pin, PinLostError
from headwater.sequence.protocol import Sequencer
from headwater.storage.errors import ObjectNotFoundError, PreconditionFailedError, StorageOutcomeUnknownError
from headwater.storage.port import Create, Update


class Pins:
    """The pins of one namespace."""

    def __init__(self, sequencer: Sequencer) -> None:
        self._sequencer = sequencer
        self._store = sequencer.store
        self._namespace = sequencer.namespace
        self._clock = sequencer.clock

    def pin(self, entry: Entry, *, ttl: timedelta, holder: str) -> Pin:
        """Keep `entry` for `ttl`; `PinLostError` when it may have been collected already."""
        return self._pin(entry.id, entry.writer, ttl, holder)

    def renew(self, pin: Pin, *, ttl: timedelta) -> Pin:
        """A new pin for the same object, for which the old one vouches while it lasts; the old one is released.

        The old pin is never extended in place: one that was extended too late would still look granted.
        """
        renewed = self._pin(pin.id, pin.writer, ttl, pin.holder)
        self.release(pin)
        return renewed

    def release(self, pin: Pin) -> None:
        """The object is no longer needed."""
        self._store.delete(pin_path(self._namespace, pin.id, pin.pin))

    def all(self) -> tuple[Pin, ...]:
        """Every pin that is there, expired ones too; one that cannot be read is an error."""
        return self._read(self._namespace.pins_folder)

    def of(self, number: int) -> tuple[Pin, ...]:
        """The pins of one object."""
        return self._read(f"{self._namespace.pins_folder}/{number:0{ID_DIGITS}d}")

    def _pin(self, number: int, writer: Ulid, ttl: timedelta, holder: str) -> Pin:
        if ttl <= timedelta(0):
            raise UsageError("a pin needs a positive time to live")
        asked = Pin(
            new_ulid(self._clock, self._sequencer.randomness),
            number,
            writer,
            holder,
            granted=False,
            expires_at=self._clock.now() + ttl,
        )
        etag = self._put(asked, Create())
        hit(Failpoint.PIN_AFTER_ASK)
        boundary = self._sequencer.boundary.read()
        others = () if boundary < number else self.of(number)
        if not may_grant(asked, boundary, others, self._clock.now()):
            self.release(asked)
            raise self._lost(asked, "may have been collected")
        hit(Failpoint.PIN_AFTER_CHECK)
        granted = replace(asked, granted=True)
        self._put(granted, Update(etag))
        if self._clock.now() >= granted.expires_at:
            raise self._lost(granted, "expired while it was asked for")
        return granted

    def _put(self, pin: Pin, mode: Create | Update) -> str:
        """Nobody else writes this object, so what is there after a lost answer tells what became of ours."""
        path = pin_path(self._namespace, pin.id, pin.pin)
        try:
            return self._store.put(path, encode_pin(pin), mode)
        except (StorageOutcomeUnknownError, PreconditionFailedError):
            with suppress(ObjectNotFoundError):
                fetched = self._store.get(path)
                if fetched.data == encode_pin(pin) and fetched.meta.etag:
                    return fetched.meta.etag
            raise

    def _read(self, folder: str) -> tuple[Pin, ...]:
        pins = []
        for meta in self._store.list(folder):
            try:
                pins.append(decode_pin(self._store.get(meta.path).data, meta.path))
            except ObjectNotFoundError:
                continue  # released since it was listed
        return tuple(pins)

    def _lost(self, pin: Pin, why: str) -> PinLostError:
        path = self._namespace.path_of(pin.id)
        return PinLostError(
            f"{path} cannot be kept: its pin {why}", hint="read the latest entry and pin that", path=path
        )
