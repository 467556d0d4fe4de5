"""Repairing drift that no sidecar explains, on every branch.

Promise: afterwards every head is where its branch pins it, readers have seen nothing of it, and a change that is on its
way in another process is neither undone nor taken for drift.

Invariants:

    1  Nothing is repaired while any sidecar is pending: what it explains is recovery's.
    2  A head counts as drifted only if it was looked at, then no sidecar was found, and then its pin was read. Whoever
       moved it had a sidecar before; that it is gone means that its change was published or undone, and then the pin,
       which is read last, tells.
    3  A head is moved only under a sidecar of the repair's own, which plans to put the pinned document, verbatim (P9),
       behind what is there. Nothing else is in that plan, so a recoverer does the very same thing.
    4  A head that is behind its pin is left as it is, and so is everything else: somebody removed objects.

Commit point: the recovery's commit that pins the restored documents, as `headwater:recovery`, one for each branch.

Steps, and what a crash after each leaves behind:

    look, twice              nothing
    write the sidecar        a note that plans to restore heads: the next sweep does it
    restore heads, in order  the same, with some of it done
    publish                  the same, with pins that are up to date: the next sweep only deletes the note
    delete the sidecar       nothing

Sequences that a branch does not pin (an unused fork) are no drift: the next write follows on them (forks/protocol.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from headwater.catalog.errors import RefNotFoundError
from headwater.catalog.model import Ref, RefKind, TableContent
from headwater.catalog.port import Catalog
from headwater.kernel.clock import Clock
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.ids import new_ulid
from headwater.kernel.logs import Log
from headwater.kernel.randomness import Randomness
from headwater.publish.errors import HeadsBehindError, RepairRefusedError
from headwater.publish.forks.decide import incarnation_of
from headwater.publish.heads import HOME, Heads
from headwater.publish.model import PlannedHead, Sidecar, WriterKind
from headwater.publish.protocol import LEASE
from headwater.publish.recovery import Recovery
from headwater.publish.repair.decide import drift_of
from headwater.publish.repair.model import Drift, DriftState, Repaired
from headwater.publish.requests import KIND, forward_request
from headwater.publish.sidecars import Sidecars
from headwater.tables.files import Files
from headwater.tables.metadata import decode_metadata

DRIFT = "headwater.recovery.drift"

_log = Log("publish")


class Repair:
    """Repairs the heads of one lake."""

    def __init__(
        self,
        catalog: Catalog,
        files: Files,
        heads: Heads,
        sidecars: Sidecars,
        recovery: Recovery,
        *,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._heads = heads
        self._sidecars = sidecars
        self._recovery = recovery
        self._clock = clock
        self._randomness = randomness

    def plan(self) -> Repaired:
        """What a repair would do now; changes nothing."""
        self._refuse_pending()
        suspects = [drift for ref in self._branches() for drift in self._suspects(ref)]
        self._refuse_pending()
        return Repaired(tuple(drift for each in suspects if (drift := self._confirmed(each)) is not None))

    def run(self, *, actor: str) -> Repaired:
        """Set heads back to what their branches hold; where one is behind its pin, nothing is changed."""
        plan = self.plan()
        if plan.behind:
            raise HeadsBehindError({each.key: (each.pinned_id, each.latest_id) for each in plan.behind})
        commits = {}
        for branch, drifts in groupby(plan.drifts, key=lambda each: each.branch):
            commit = self._mend(branch, tuple(drifts), actor)
            if commit is not None:
                commits[branch] = commit
        return Repaired(plan.drifts, commits)

    # Looking

    def _refuse_pending(self) -> None:
        pending = self._sidecars.pending()
        if pending:
            raise RepairRefusedError([each.operation for each in pending])

    def _branches(self) -> Iterator[Ref]:
        return (ref for ref in self._catalog.refs() if ref.kind is RefKind.BRANCH)

    def _suspects(self, ref: Ref) -> Iterator[Drift]:
        """Heads that are not at the pin that was read before them."""
        for key, content in self._catalog.contents(ref.hash):
            path = self._own_sequence(ref, content) if isinstance(content, TableContent) else None
            if path is not None and isinstance(content, TableContent):
                pinned_id, latest_id = self._heads.id_in(path, content), self._latest_id(path)
                state = drift_of(pinned_id, latest_id)
                if state is not None:
                    yield Drift(ref.name, ref.incarnation, key, path, content, pinned_id, latest_id, state)

    def _own_sequence(self, ref: Ref, content: TableContent) -> str | None:
        """The sequence that holds the pinned version, if it is the branch's own: others only share the version."""
        place = self._heads.place_of(content)
        if place is None:
            return None
        incarnation = incarnation_of(place[0])
        if incarnation is not None:
            return place[0] if incarnation == ref.incarnation else None
        location = content.metadata_location
        try:
            home = decode_metadata(self._files.read(location), location).properties.get(HOME)
        except HeadwaterError as error:
            _log.warning("a pinned document cannot be read", path=location, error=str(error))
            return place[0]  # what its head is will tell
        return place[0] if home == ref.incarnation else None

    def _latest_id(self, path: str) -> int:
        latest = self._heads.sequence(path).latest()
        return latest.id if latest else 0

    def _confirmed(self, drift: Drift) -> Drift | None:
        """The drift by a pin that is read after everything else; None when somebody has published meanwhile."""
        try:
            ref = self._catalog.ref(drift.branch)
        except RefNotFoundError:
            return None
        content = self._catalog.content(ref.hash, [drift.key]).get(drift.key)
        if ref.incarnation != drift.branch_incarnation or not isinstance(content, TableContent):
            return None
        pinned_id, latest_id = self._heads.id_in(drift.path, content), drift.latest_id
        if not pinned_id:
            return None  # another table of that name
        if latest_id < pinned_id:
            latest_id = self._latest_id(drift.path)  # it may have moved before its pin did
        state = drift_of(pinned_id, latest_id)
        if state is None or (state is DriftState.AHEAD and latest_id != drift.latest_id):
            return None  # published meanwhile, and perhaps on its way again
        return replace(drift, pinned=content, pinned_id=pinned_id, latest_id=latest_id, state=state)

    # Mending

    def _mend(self, branch: str, drifts: Sequence[Drift], actor: str) -> str | None:
        """One sidecar and one commit for all heads of a branch; None when others have seen to it."""
        with self._recovery.queues.hold(branch, [each.key for each in drifts]):
            # Writers of this process are out of the way now; what they did before is looked at again.
            left = [each for each in drifts if self._is_as_it_was(each)]
            if not left:
                return None
            sidecar = self._note(branch, left, actor)
            forward_request(sidecar, None, actor)  # what no commit can say is refused before the note (P19)
            self._sidecars.write(sidecar)
            return self._recovery.conclude(sidecar).commit

    def _is_as_it_was(self, drift: Drift) -> bool:
        return self._latest_id(drift.path) == drift.latest_id and self._confirmed(drift) == drift

    def _note(self, branch: str, drifts: Sequence[Drift], actor: str) -> Sidecar:
        found = {str(each.key): {"pinned_id": each.pinned_id, "head_id": each.latest_id} for each in drifts}
        return Sidecar(
            operation=new_ulid(self._clock, self._randomness),
            kind=WriterKind.REPAIR,
            actor=actor,
            message=f"repaired {', '.join(sorted(found))}: set back to what {branch} holds",
            branch=branch,
            branch_incarnation=drifts[0].branch_incarnation,
            process=self._recovery.process,
            lease_until=self._clock.now() + LEASE,
            heads=tuple(self._planned(each) for each in drifts),
            properties={KIND: "repaired", DRIFT: json.dumps(found, sort_keys=True)},
            since=self._catalog.ref(branch).hash,
        )

    def _planned(self, drift: Drift) -> PlannedHead:
        return PlannedHead(
            drift.key,
            drift.path,
            drift.pinned.content_id,
            drift.pinned,
            drift.latest_id,
            new_ulid(self._clock, self._randomness),
            self._heads.located(drift.path, drift.latest_id + 1, drift.pinned),
        )
