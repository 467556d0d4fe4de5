"""Promoting: a replica branch moves to the localised state of one commit of `main`.

Promise: readers of a replica see a commit of `main` whole, all of its tables at once, and never an older one than they
have seen, unless `main` itself was moved back. Whoever loses the race changes nothing.

Invariants:

    1  Gate (R4): the region's own catalog shows the target and its contents before the replica moves there; so who
       follows the replica finds everything.
    2  The commit lands on the very head that the run was planned on, or not at all (R1: the catalog's promise).
    3  After a conflict nothing is tried again with the old plan: a replica that is at or past the target is left alone,
       anything else is planned anew (R2). Who finds the way taken first looks whether by its own commit: an answer
       came late, or another process has gone on with the same run.
    4  A subset leaves the origin where it was: the replica does not show all of the target (R7). What it does show
       beyond its origin is noted with the commit, so that the next run looks at these names whatever main did to them.
    5  The commit's operation is the run's id, so that a run which died in the act, or whose answer was lost, finds out
       what became of it.
    6  Nothing vanishes because little is known: a run that takes what it localised for all of the target, and lacks
       some of it, is planned anew. (It had localised what changed, and what it compared with is not kept any more.)
    7  A branch that is not empty, and that no sync has ever committed to, is no replica, whatever the registry says: it
       is refused, and stays what it is (R7).

Commit point: the catalog's commit on the replica branch.

Steps, and what a crash after each leaves behind:

    look for the run's own commit     nothing
    wait for the gate                 nothing
    removals                          a replica that lacks names which turn from a table into a view, or the like
    commit                            a replica at the target, which the next process finds by the run's id
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from headwater.catalog.errors import (
    BehindHorizonError,
    CommitNotFoundError,
    ExpectedVersionMismatchError,
    RefConflictError,
    RefExistsError,
    RefNotFoundError,
)
from headwater.catalog.model import Commit, CommitRequest, Content, Delete, NamespaceContent, TableKey
from headwater.catalog.port import Catalog
from headwater.kernel.clock import Clock
from headwater.kernel.errors import CorruptError, RefusedError, UnavailableError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.logs import Log
from headwater.kernel.metrics import Metrics
from headwater.kernel.randomness import Randomness
from headwater.sync.model import (
    MADE_WITH,
    ORIGIN_BRANCH,
    ORIGIN_CREATED_AT,
    ORIGIN_HASH,
    SYNC_ACTOR,
    Origin,
    Replica,
    Times,
    ahead,
    ahead_of,
    origin_of,
    spelled,
)
from headwater.sync.observe.metrics import CONFLICTS
from headwater.sync.promote.decide import after_conflict, before_commit, promotion, standing
from headwater.sync.promote.model import Gate, Next, Promotion, Standing

_log = Log("sync.promote")

# Servers of one catalog go by clocks of their own: a commit may seem this much older than one beneath it.
CLOCKS_APART = timedelta(minutes=10)


@dataclass(frozen=True)
class Wanted:
    """A promotion that is asked for.

    `localised` holds the names that changed, None for what is gone; with `is_full` what it does not hold is gone too.
    A subset keeps the origin that the replica has.
    """

    region: str
    run: Ulid
    replica: Replica
    target: Origin
    localised: Mapping[TableKey, Content | None]
    is_full: bool
    is_subset: bool
    made_with: str
    times: Times


@dataclass(frozen=True)
class Ended:
    """How it ended: with a commit, or with the reason why there is none."""

    next: Next
    commit: Commit | None = None
    reason: str = ""


class Promoter:
    """Moves replica branches. `regional` is the catalog as the region sees it; where there is but one, it is that."""

    def __init__(
        self,
        catalog: Catalog,
        regional: Catalog,
        *,
        clock: Clock,
        randomness: Randomness,
        metrics: Metrics,
        gate_patience: timedelta,
        poll: timedelta,
    ) -> None:
        self._catalog = catalog
        self._regional = regional
        self._clock = clock
        self._randomness = randomness
        self._metrics = metrics
        self._gate_patience = gate_patience
        self._poll = poll

    def replica(self, branch: str) -> Replica:
        """The replica as it stands; a branch that is not there is made, empty (R7)."""
        found = self.look(branch)
        if found.head:
            self._refuse_a_strangers(found)
            return found
        try:
            head = self._catalog.create_empty_branch(branch).hash
        except RefExistsError:
            head = self._catalog.ref(branch).hash
        return self.replica_at(branch, head)

    def _refuse_a_strangers(self, found: Replica) -> None:
        """A branch that others have filled, and sync never, is no replica: all that it shows would be replaced (R7)."""
        if found.origin is not None or self._is_empty(found.head):
            return
        with suppress(CommitNotFoundError, BehindHorizonError):
            if any(commit.actor == SYNC_ACTOR for commit in self._catalog.log(found.head)):
                return
        raise RefusedError(
            f"{found.branch} is no replica: it has tables, and no commit of it is a sync's",
            hint="name another `branch` in the registry; or delete this one, and sync makes it anew",
            branch=found.branch,
        )

    def _is_empty(self, head: str) -> bool:
        return all(isinstance(each, NamespaceContent) for _, each in self._catalog.contents(head))

    def look(self, branch: str) -> Replica:
        """The replica as it stands, if it is there; changes nothing."""
        try:
            head = self._catalog.ref(branch).hash
        except RefNotFoundError:
            return Replica(branch, "")
        return self.replica_at(branch, head)

    def promote(self, wanted: Wanted, held: Callable[[], None]) -> Ended:
        """Make the replica show the target; `held` raises when what the run has claimed is not held any more (G3)."""
        branch = wanted.replica.branch
        found = self._own(wanted)
        if found is not None:
            return Ended(Next.COMMIT, found)
        if lacking := self._lacking(wanted):
            return Ended(Next.PLAN_AGAIN, reason=f"{lacking} was not localised, and what was shown before is not kept")
        began = self._clock.monotonic()
        while True:
            where, is_on_main = self._standing(branch, wanted)
            waited = timedelta(seconds=self._clock.monotonic() - began)
            gate = self._gate(wanted.target, wanted.localised)
            match before_commit(
                where, is_target_on_main=is_on_main, gate=gate, waited=waited, patience=self._gate_patience
            ):
                case Next.WAIT:
                    self._clock.sleep(self._poll.total_seconds())
                case Next.COMMIT:
                    held()
                    return self._commit(wanted)
                case Next.GIVE_UP:
                    reason = f"{wanted.region} does not show {wanted.target.hash} after {waited.total_seconds():.0f} s"
                    _log.error("the gate stays shut", region=wanted.region, target=wanted.target.hash)
                    return Ended(Next.GIVE_UP, reason=reason)
                case ended:
                    reason = f"the replica is {where.value}, and the target is {wanted.target.hash}"
                    return self._unless_done(wanted, Ended(ended, reason=reason))

    def _commit(self, wanted: Wanted) -> Ended:
        branch, head = wanted.replica.branch, wanted.replica.head
        try:
            change = self._change(wanted, head)
            if change.removals:
                head = self._remove(wanted, head, change.removals)
                change = self._change(wanted, head)
            commit = self._catalog.commit(
                CommitRequest(
                    branch=branch,
                    head=head,
                    changes=change.changes,
                    expected=change.expected,
                    actor=SYNC_ACTOR,
                    message=self._message(wanted),
                    operation=wanted.run,
                    properties=self._properties(wanted),
                )
            )
        except (ExpectedVersionMismatchError, RefConflictError) as error:
            self._metrics.count(CONFLICTS, region=wanted.region)
            where, _ = self._standing(branch, wanted)
            return self._unless_done(wanted, Ended(after_conflict(where), reason=error.message))
        hit(Failpoint.PROMOTE_AFTER_COMMIT)
        return Ended(Next.COMMIT, commit)

    def _own(self, wanted: Wanted) -> Commit | None:
        return self._catalog.outcome(wanted.replica.branch, wanted.run, above=wanted.replica.head)

    def _unless_done(self, wanted: Wanted, ended: Ended) -> Ended:
        """How it ended, unless it is the run's own commit that is in the way."""
        found = self._own(wanted)
        return ended if found is None else Ended(Next.COMMIT, found)

    def _lacking(self, wanted: Wanted) -> TableKey | None:
        """A name of the target that would vanish from the replica, since what is localised is taken for everything."""
        if not wanted.is_full:
            return None
        return next((key for key, _ in self._catalog.contents(wanted.target.hash) if key not in wanted.localised), None)

    def _change(self, wanted: Wanted, head: str) -> Promotion:
        localised = {key: each for key, each in wanted.localised.items() if each is not None}
        if wanted.is_full:
            return promotion(localised, dict(self._catalog.contents(head)))
        return promotion(localised, self._catalog.content(head, tuple(wanted.localised)))

    def _remove(self, wanted: Wanted, head: str, removals: Mapping[TableKey, Content]) -> str:
        commit = self._catalog.commit(
            CommitRequest(
                branch=wanted.replica.branch,
                head=head,
                changes=dict.fromkeys(removals, Delete()),
                expected=removals,
                actor=SYNC_ACTOR,
                message=f"make room for what has another kind at {wanted.target.hash}",
                operation=new_ulid(self._clock, self._randomness),
                properties=_as_it_was(wanted, removals),
            )
        )
        hit(Failpoint.PROMOTE_AFTER_REMOVALS)
        return commit.hash

    def _message(self, wanted: Wanted) -> str:
        return f"{ORIGIN_BRANCH} at {wanted.target.hash}" + (", some tables" if wanted.is_subset else "")

    def _properties(self, wanted: Wanted) -> dict[str, str]:
        if wanted.is_subset:
            return _as_it_was(wanted, wanted.localised)
        times = Times(
            wanted.times.origin_created_at,
            wanted.times.copy_ended_at,
            wanted.times.localize_ended_at,
            self._clock.now(),
        )
        return {ORIGIN_HASH: wanted.target.hash, MADE_WITH: wanted.made_with, **times.properties}

    def _standing(self, branch: str, wanted: Wanted) -> tuple[Standing, bool]:
        target, main = wanted.target, self._catalog.ref(ORIGIN_BRANCH).hash
        replica = self.replica(branch)
        shown = replica.origin
        where = standing(
            shown,
            target,
            is_shown_on_main=shown is not None and is_part_of(self._catalog, shown, main),
            is_target_before_shown=shown is not None and is_part_of(self._catalog, target, shown.hash),
            is_made_alike=replica.is_at(target, wanted.made_with),
        )
        return where, is_part_of(self._catalog, target, main)

    def _gate(self, target: Origin, keys: Mapping[TableKey, Content | None]) -> Gate:
        """What the region sees. A catalog that is being replicated may fail on what has half arrived: not yet."""
        try:
            head = self._regional.ref(ORIGIN_BRANCH).hash
            if not is_part_of(self._regional, target, head):
                return Gate(is_visible=False, do_contents_load=False)
        except (RefNotFoundError, UnavailableError, CorruptError):
            return Gate(is_visible=False, do_contents_load=False)
        try:
            found = self._regional.content(target.hash, tuple(keys))
        except (CommitNotFoundError, UnavailableError, CorruptError):
            return Gate(is_visible=True, do_contents_load=False)
        # Fewer than there are would mean that some have not arrived.
        return Gate(is_visible=True, do_contents_load=found == self._catalog.content(target.hash, tuple(keys)))

    def replica_at(self, branch: str, head: str) -> Replica:
        """The replica as it stood at this commit of it."""
        try:
            properties = self._catalog.commit_at(head).properties
        except CommitNotFoundError:
            return Replica(branch, head)  # it has no commit yet
        moved = ahead_of(properties)
        if moved is None:  # then nothing of it is taken for known
            return Replica(branch, head, origin_of(properties))
        return Replica(branch, head, origin_of(properties), properties.get(MADE_WITH), moved)


def is_part_of(catalog: Catalog, origin: Origin, head: str) -> bool:
    """Whether the commit is the head or one before it; times hardly go back, so not all of the log is read."""
    try:
        for commit in catalog.log(head):
            if commit.hash == origin.hash:
                return True
            if commit.committed_at < origin.created_at - CLOCKS_APART:
                return False
    except (CommitNotFoundError, BehindHorizonError):
        return False
    return False


def _as_it_was(wanted: Wanted, moved: Iterable[TableKey]) -> dict[str, str]:
    """What says which commit a replica shows, when that stays as it is for all but the names that are moved.

    With names that are made in another way, nothing of it is taken for known any more.
    """
    before = wanted.replica
    if before.origin is None:
        return {}
    known = {ORIGIN_HASH: before.origin.hash, ORIGIN_CREATED_AT: spelled(before.origin.created_at)}
    if before.made_with is not None and before.made_with == wanted.made_with:
        known[MADE_WITH] = before.made_with
    return {**known, **ahead((*before.ahead, *moved))}
