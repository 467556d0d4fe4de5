"""Holding commits, for those who read them; see hold.py for why it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from headwater.catalog.embedded.codec import MIGRATIONS, Migrations
from headwater.catalog.embedded.hold import HOLD_TTL, Hold, Unheld
from headwater.catalog.embedded.objects import Objects
from headwater.catalog.embedded.refs import EmbeddedRefs
from headwater.catalog.model import Commit
from headwater.catalog.port import Held
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.ids import Ulid
from headwater.kernel.logs import Log
from headwater.sequence.history import History
from headwater.sequence.model import HeldPin, PinLostError
from headwater.sequence.pins import Pins
from headwater.sequence.protocol import Sequencer

_log = Log("catalog")


class EmbeddedHolds(EmbeddedRefs):
    """What may be held of one lake."""

    def __init__(
        self,
        history: History,
        objects: Objects,
        lake: Ulid,
        *,
        migrations: Migrations = MIGRATIONS,
        hold_ttl: timedelta = HOLD_TTL,
    ) -> None:
        super().__init__(history, objects, lake, migrations=migrations)
        self._hold_ttl = hold_ttl

    @contextmanager
    def hold(self, at: str, *, holder: str) -> Iterator[Held]:
        """While it lasts, nothing that the commit leads to is collected, and it may be read behind the horizon."""
        if not isinstance(self._history, Sequencer):
            stored = self._kept(at)
            _log.debug("nothing is held: the lake is open for reading only", hash=at, holder=holder)
            yield Unheld(lambda: self._judge_kept(stored.commit))
            return
        with self._holds.turn(at):
            hold = self._holds.share(at) or self._made(at, holder, Pins(self._history))
        try:
            yield hold
        finally:
            if self._holds.remove(at, hold):
                hold.end()

    def _made(self, at: str, holder: str, pins: Pins) -> Hold:
        """A new hold of the commit."""
        hold = Hold(pins, self._pin(pins, self._stored(at).commit, holder), ttl=self._hold_ttl, clock=self._clock)
        hold.start()
        self._holds.add(at, hold)
        return hold

    def _pin(self, pins: Pins, commit: Commit, holder: str) -> HeldPin:
        """A pin on a manifest by which the commit is kept."""
        patience = self._history.retry.patience()
        remembered = self._remembered_under(commit.hash)
        while True:
            # One that was seen before will do while it has the commit as a head: a pin of what is gone is refused.
            seen, remembered = remembered or self._seen(), None
            self._judge_kept_by(seen.manifest, commit)
            try:
                held = pins.pin(seen.entry, ttl=self._hold_ttl, holder=holder)
            except PinLostError:
                if not patience.wait():
                    raise
                continue
            try:
                # A collector that published its horizon before this look may not have seen the pin; any other does.
                self._judge_kept_by(self._seen().manifest, commit)
            except HeadwaterError:
                pins.release(held)
                raise
            return held
