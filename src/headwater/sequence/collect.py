"""The collector: makes room behind the boundary, and never in front of it.

    list       what is there, with the store's own times
    advance    raise the boundary to the largest id that is old enough and not the latest
    pins       read them now, not earlier: a pin that was granted saw the boundary below its id, so it was
               written before this advance and is seen (hazard S4); judged by the time of the survey, the earlier one
    delete     one by one, what is behind the durable boundary, old enough, not the latest, not pinned

A crash after any step leaves excess objects, never a missing one; the next run goes on. Any number of
collectors may run at once: the boundary only rises, and each deletes only behind it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.logs import Log
from headwater.sequence.decide import deletable, latest_id, wished_boundary
from headwater.sequence.history import History
from headwater.sequence.model import Collection, Listed, Retention
from headwater.sequence.pins import Pins
from headwater.storage.errors import ObjectNotFoundError

_log = Log("sequence")


@dataclass(frozen=True)
class _Survey:
    """What a collection is decided on: all of it by one moment's clock."""

    now: datetime
    boundary: int
    listing: tuple[Listed, ...]


class Collector:
    """Collects one namespace. Planning needs to read only."""

    def __init__(self, history: History, retention: Retention) -> None:
        self._history = history
        self._retention = retention
        self._pins = Pins(history)

    def plan(self) -> Collection:
        """What a collection would do now; changes nothing."""
        survey = self._survey()
        boundary = max(survey.boundary, self._wish(survey) or 0)
        return self._told(survey, boundary, self._pins.pinned(survey.now, self._retention))

    def collect(self) -> Collection:
        """Advance, then delete; returns what was done."""
        survey = self._survey()
        hit(Failpoint.COLLECT_AFTER_LIST)
        wish = self._wish(survey)
        boundary = self._history.boundary.advance(wish) if wish else survey.boundary
        hit(Failpoint.COLLECT_AFTER_ADVANCE)
        pinned = self._pins.pinned(survey.now, self._retention)
        hit(Failpoint.COLLECT_AFTER_PINS)
        for doomed in deletable(survey.listing, boundary, pinned, survey.now, self._retention):
            self._history.store.delete(doomed.path)
            hit(Failpoint.COLLECT_AFTER_DELETE)
        self._pins.drop_ended(boundary, survey.now, self._retention)
        done = self._told(survey, boundary, pinned)
        _log.info(
            "namespace collected",
            namespace=self._history.namespace.name,
            boundary=boundary,
            deleted=len(done.deleted),
            pinned=len(done.pinned),
        )
        return done

    def _wish(self, survey: _Survey) -> int | None:
        return wished_boundary(survey.listing, survey.now, self._retention)

    def _told(self, survey: _Survey, boundary: int, pinned: frozenset[int]) -> Collection:
        gone = deletable(survey.listing, boundary, pinned, survey.now, self._retention)
        return Collection(
            latest=latest_id(survey.listing),
            boundary_before=survey.boundary,
            boundary_after=boundary,
            deleted=tuple(each.id for each in gone),
            pinned=tuple(sorted(pinned)),
        )

    def _survey(self) -> _Survey:
        """The boundary, and then what is there: whatever was latest at the time of the list lies ahead of it."""
        now = self._history.clock.now()
        boundary = self._history.boundary.read()
        listing = tuple(self._history.listing())
        # Damage must be found out while nothing is changed: in what is there, in the latest object, in the pins.
        self._history.refuse_damage([each.id for each in listing if each.id > boundary], boundary)
        latest = latest_id(listing)
        if latest is not None:
            with suppress(ObjectNotFoundError):  # another collector was faster: there is a newer one
                self._history.read(latest)
        self._pins.records()
        return _Survey(now, boundary, listing)
