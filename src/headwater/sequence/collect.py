"""The collector: makes room behind the boundary, and never in front of it.

    list       what is there, with the store's own times
    advance    raise the boundary to the largest id that is old enough and not the latest
    pins       read them now, not earlier: a pin that was granted saw the boundary below its id, so it was
               written before this advance and is seen (hazard S4)
    delete     one by one, what is behind the durable boundary, old enough, not the latest, not pinned

A crash after any step leaves excess objects, never a missing one; the next run goes on. Any number of
collectors may run at once: the boundary only rises, and each deletes only behind it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from headwater.kernel.errors import CorruptError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.logs import Log
from headwater.sequence.codec import pin_path
from headwater.sequence.decide import is_active, latest_id, plan_collection, wished_boundary
from headwater.sequence.model import CollectPlan, Listed, Pin, Retention
from headwater.sequence.pins import Pins
from headwater.sequence.protocol import Sequencer

_log = Log("sequence")


class Collector:
    """Collects one namespace."""

    def __init__(self, sequencer: Sequencer, retention: Retention) -> None:
        self._sequencer = sequencer
        self._retention = retention
        self._pins = Pins(sequencer)

    def plan(self) -> CollectPlan:
        """What a collection would do now; changes nothing."""
        boundary, listing = self._survey()
        return plan_collection(listing, boundary, self._pins.all(), self._now(), self._retention)

    def collect(self) -> CollectPlan:
        """Advance, then delete; returns what was done."""
        boundary, listing = self._survey()
        hit(Failpoint.COLLECT_AFTER_LIST)
        wish = wished_boundary(listing, self._now(), self._retention)
        durable = self._sequencer.boundary.advance(wish) if wish else boundary
        hit(Failpoint.COLLECT_AFTER_ADVANCE)
        pins = self._pins.all()
        hit(Failpoint.COLLECT_AFTER_PINS)
        plan = plan_collection(listing, durable, pins, self._now(), self._retention)
        for doomed in plan.delete:
            self._sequencer.store.delete(doomed.path)
            hit(Failpoint.COLLECT_AFTER_DELETE)
        self._drop_expired(pins)
        _log.info(
            "namespace collected",
            namespace=self._sequencer.namespace.name,
            boundary=durable,
            deleted=len(plan.delete),
            pinned=len(plan.pinned),
        )
        return replace(plan, boundary=boundary, advance_to=durable if durable > boundary else None)

    def _survey(self) -> tuple[int, tuple[Listed, ...]]:
        """The boundary, and then what is there: whatever was latest at the time of the list lies ahead of it."""
        boundary = self._sequencer.boundary.read()
        listing = tuple(self._sequencer.listing())
        latest = latest_id(listing)
        if boundary and (latest is None or latest <= boundary):
            raise CorruptError(
                f"{self._sequencer.store.name}: the boundary {boundary} of {self._sequencer.namespace.folder} "
                f"covers everything that is there",
                hint="nothing is deleted; its newest object is missing",
                path=self._sequencer.namespace.folder,
            )
        return boundary, listing

    def _now(self) -> datetime:
        return self._sequencer.clock.now()

    def _drop_expired(self, pins: tuple[Pin, ...]) -> None:
        """An expired pin can be neither renewed nor trusted, so nobody misses it."""
        now = self._now()
        for pin in pins:
            if not is_active(pin, now, self._retention):
                self._sequencer.store.delete(pin_path(self._sequencer.namespace, pin.id, pin.pin))
