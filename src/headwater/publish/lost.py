"""Whether a wish is lost before anything of it is written: somebody was faster, or it took too long."""

from __future__ import annotations

from datetime import timedelta

from headwater.catalog.errors import BeganTooEarlyError, ExpectedVersionMismatchError, RefConflictError
from headwater.catalog.model import RefKind
from headwater.catalog.port import Catalog
from headwater.kernel.clock import Clock
from headwater.kernel.errors import RefusedError, UsageError
from headwater.kernel.ids import time_of
from headwater.publish.errors import TooLateError
from headwater.publish.model import Wish

JUST_BEGUN = timedelta(seconds=60)


def refuse_lost(catalog: Catalog, clock: Clock, wish: Wish) -> str:
    """Is everything still as the wish was made on? Returns the head that says so."""
    ref = catalog.ref(wish.branch)
    if ref.kind is not RefKind.BRANCH:
        raise UsageError(f"{wish.branch} is a tag, and takes no commits", hint="name a branch", ref=wish.branch)
    if ref.incarnation != wish.branch_incarnation:
        raise RefConflictError(wish.branch, wish.branch_incarnation, ref.incarnation)
    expected = {**wish.reads, **{key: each.before for key, each in wish.others.items()}}
    for each in wish.tables:
        expected |= {each.key: None, each.renamed_from or each.key: each.pinned}
    actual = catalog.known_content(ref.hash, list(expected))
    for key, version in sorted(expected.items()):
        if version != actual.get(key):
            raise ExpectedVersionMismatchError(key, version, actual.get(key))
    refuse_late(clock, wish)
    if not wish.tables and not wish.others and wish.merge_parent is None:
        raise RefusedError("there is nothing to publish")
    _refuse_swept(catalog, clock, wish)
    return ref.hash


def refuse_late(clock: Clock, wish: Wish) -> None:
    """A wish is not committed after its deadline."""
    if wish.deadline is not None and clock.now() >= wish.deadline:
        raise TooLateError(wish.operation, wish.deadline.isoformat(timespec="seconds"))


def _refuse_swept(catalog: Catalog, clock: Clock, wish: Wish) -> None:
    """A change that began before the staging horizon would be refused later (P10).

    One that has only just begun does not ask: cleanup hardly takes what is that young, and the commit itself looks.
    """
    began_at, keeping = time_of(wish.operation), catalog.keeping
    if keeping is not None and clock.now() - began_at > JUST_BEGUN:
        staging = keeping.horizons().staging
        if staging is not None and began_at < staging:
            raise BeganTooEarlyError(began_at, staging)
