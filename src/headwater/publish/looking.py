"""What a sidecar that was found means, from one look at its branch, its heads and the log. Changes nothing.

Order: the pins, then the heads, then the log. Whoever finds the change unpublished at the end knows that nobody had
built on its heads when they were looked at. Asked first, the log would know nothing of a change that is published while
its heads are looked at: those that others have built on would then count as lost, and the rest would be undone (P16).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.catalog.errors import BehindHorizonError, CommitNotFoundError, RefNotFoundError
from headwater.catalog.model import Commit, Content, TableContent, TableKey
from headwater.catalog.port import Catalog
from headwater.kernel.ids import time_of
from headwater.publish.decide import is_published, pins_hold, state_of, verdict_on
from headwater.publish.heads import Heads
from headwater.publish.model import HeadFacts, PlannedHead, Recovered, Sidecar, Verdict


@dataclass(frozen=True)
class Look:
    """What one look found: what it means, the facts of each head, and the commit of the change, if there is one."""

    meant: Recovered
    facts: Mapping[TableKey, HeadFacts]
    published: Commit | None = None


class Looking:
    """Looks at sidecars of one lake."""

    def __init__(self, catalog: Catalog, heads: Heads) -> None:
        self._catalog = catalog
        self._heads = heads

    def at(self, sidecar: Sidecar) -> Look:
        """What the sidecar means: pins, then heads, then the log, so that none of them is older than the one before."""
        try:
            ref = self._catalog.ref(sidecar.branch)
            if ref.incarnation != sidecar.branch_incarnation:
                return Look(Recovered(sidecar.operation, Verdict.DISCARD, {}), {})
            rests_on = sidecar.rests_on
            actual = self._catalog.content(ref.hash, [*sidecar.keys, *rests_on])
            facts = {head: self._facts(head, actual) for head in sidecar.heads}
            published = self._catalog.outcome(sidecar.branch, sidecar.operation, above=sidecar.since)
        except RefNotFoundError:
            return Look(Recovered(sidecar.operation, Verdict.DISCARD, {}), {})
        states = {head.key: state_of(sidecar, head, each) for head, each in facts.items()}
        verdict = verdict_on(
            tuple(states.values()),
            published=published is not None or any(is_published(sidecar, *each) for each in facts.items()),
            branch_lives=True,
            reads_hold=all(version == actual.get(key) for key, version in rests_on.items()),
            pins_hold=pins_hold(facts.items()),
        )
        if verdict is Verdict.FORWARD and (self._began_too_early(sidecar) or self._lost_its_parent(sidecar)):
            verdict = Verdict.BACK
        meant = Recovered(sidecar.operation, verdict, states)
        return Look(meant, {head.key: each for head, each in facts.items()}, published)

    def _facts(self, head: PlannedHead, actual: Mapping[TableKey, Content]) -> HeadFacts:
        """A table that was to be renamed is under its new name once that is published."""
        renamed = actual.get(head.key)
        is_there = isinstance(renamed, TableContent) and renamed.content_id == head.incarnation
        return self._heads.facts(head, renamed if is_there else actual.get(head.pinned_key))

    def _began_too_early(self, sidecar: Sidecar) -> bool:
        """Whether files that it staged may have been cleaned up: the catalog refuses its commit, for ever (P10)."""
        keeping = self._catalog.keeping
        staging = keeping.horizons().staging if keeping is not None else None
        return staging is not None and time_of(sidecar.operation) < staging

    def _lost_its_parent(self, sidecar: Sidecar) -> bool:
        """Whether the commit that it merges is no longer kept: the catalog refuses that merge, for ever (P6)."""
        if sidecar.merge_parent is None:
            return False
        try:
            self._catalog.commit_at(sidecar.merge_parent)
        except (BehindHorizonError, CommitNotFoundError):
            return True
        return False
