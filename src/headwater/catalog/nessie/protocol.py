"""Committing to a lake whose catalog is a Nessie server.

Promise: that of the port. A commit that is reported is in its branch's log exactly once, judged on the very state that
it follows on; one that is reported as a conflict is in no log, and by no act of its writer ever will be.

A Nessie commit is not a compare-and-swap of its branch: it names a commit that it was judged on, and fails only if one
of the keys that it names differs between there and the head. So:

    request            how it lands                                                       what it compares
    names no head      one commit; what was only read travels as UNCHANGED (P8)            every key that it rests on
    names a head,      the same, and the fence, one key of the branch, gets a fresh       the head: every commit to such
      replica branch     ULID in each commit (R1: an equal value would fence nothing)        a branch is ours
    names a head,      commit on a temporary branch that begins at the head, then         the head: engines commit here
      any other          assign the branch, which Nessie compares and swaps                  without us

Invariants:

    1  What a request rests on is read at one commit, judged, and compared by Nessie with the head in the act itself.
    2  A commit whose answer was lost is looked for in the log, by its operation, for longer than a server may take for
       it. Found: it is reported. Not found: it is proven absent. Whoever cannot look does not know (P3).
    3  Nothing is sent twice. Whoever is told of a conflict, or that nothing was committed, has nothing on its way.
    4  A conflict is believed when the log does not hold the operation: a server that does not know whether its commit
       went through tries again by itself, and then finds its own commit in its way.

Commit point: Nessie's own commit; of one that must follow on a head, the assignment.

Steps, and what a crash after each leaves behind:

    read the head, judge         nothing
    temporary branch             a branch `headwater/commit/…` that nobody is shown; swept when it is old
    commit on it                 the same, with a commit that is in no log
    commit, or assign            a commit that nobody reported; its operation in the log identifies it
    temporary deleted, report    a commit

A branch that is deleted and made again on the very same head, between our look at its incarnation and the commit, is
not told from what it was: all that it holds is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime

from headwater.catalog.errors import (
    CatalogBusyError,
    CommitNotFoundError,
    CommitOutcomeUnknownError,
    RefExistsError,
    RefNotFoundError,
)
from headwater.catalog.judging import keys_to_judge
from headwater.catalog.model import Commit, CommitRequest, Content, RefKind, TableKey
from headwater.catalog.nessie.codec import content_of, elements_of, key_of, kind_of
from headwater.catalog.nessie.decide import (
    commit_meta,
    incarnation_of,
    is_abandoned,
    is_own_ref,
    judge,
    namespaces_emptied,
    needs_assignment,
    operations,
    settle_seconds,
)
from headwater.catalog.nessie.model import FENCE, TEMPORARIES, Json, Seen
from headwater.catalog.nessie.refs import NessieRefs
from headwater.catalog.nessie.transport import LostAnswerError, RejectedError, ref_path
from headwater.catalog.port import Held, Keeping, TableHeads
from headwater.kernel.errors import HeadwaterError, OutcomeUnknownError, RefusedError, UnavailableError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.ids import new_ulid
from headwater.kernel.logs import Log

_LOOK_EVERY_SECONDS = 0.5

_log = Log("catalog")


class _Standing:
    """Nessie keeps what any ref leads to, so there is nothing to lose."""

    def check(self) -> None:
        """It always holds."""


class _OvertakenError(HeadwaterError):
    """Somebody else was faster; look again. It is a conflict, or what was compared with is no part of the branch."""

    def __init__(self, rejected: RejectedError, keys: Sequence[str]) -> None:
        super().__init__(rejected.message, keys=list(keys))
        self.is_conflict = rejected.is_conflict


class NessieCatalog(NessieRefs):
    """The catalog of one Nessie repository, as one process reads and writes it. Safe to share among threads."""

    @property
    def heads(self) -> TableHeads | None:
        """None: a table's version is what the branch holds, and nothing else."""
        return None

    @property
    def keeping(self) -> Keeping | None:
        """None: what may be deleted is decided over all regions, by `reclaim`."""
        return None

    @contextmanager
    def hold(self, at: str, *, holder: str) -> Iterator[Held]:  # noqa: ARG002  (nobody is told)
        """While it lasts, nothing that the commit leads to is collected."""
        self._require_commit(at)
        yield _Standing()

    def commit_all(self, requests: Sequence[CommitRequest]) -> tuple[Commit | HeadwaterError, ...]:
        """Commit each on what those before it made, one after the other, or say of each why not."""
        answers: list[Commit | HeadwaterError] = []
        for request in requests:
            try:
                answers.append(self.commit(request))
            except HeadwaterError as error:
                answers.append(error)
        return tuple(answers)

    def commit(self, request: CommitRequest) -> Commit:
        """Commit, or say why not."""
        if request.merge_parent is not None:
            self._require_commit(request.merge_parent)
        patience = self._retry.patience()
        while True:
            seen = self._look(request)
            self._judge(request, seen)
            wanted = operations(request, seen, new_ulid(self._clock, self._randomness))
            try:
                landed = self._send(request, seen, wanted)
            except _OvertakenError as error:
                if error.is_conflict and (found := self._own(request, seen.hash, error)) is not None:
                    return found
                if not patience.wait():
                    raise CatalogBusyError(self.name) from error
            except RefusedError as error:  # by an endpoint that can only be read; its log is asked, as after a conflict
                if (found := self._own(request, seen.hash, error)) is not None:
                    return found
                raise
            except LostAnswerError as error:
                return self._settled(request, seen.hash, len(wanted), error)
            else:
                hit(Failpoint.NESSIE_COMMIT_AFTER_COMMIT)
                return self._reported(request, landed)

    def sweep_temporaries(self, before: datetime) -> int:
        """Delete temporary branches of commits that began before this moment; a late one fails, and changes nothing."""
        count = 0
        ours = {"filter": f"ref.name.startsWith({TEMPORARIES!r})"}
        for each in self._api.pages("trees", "references", params=ours):
            if is_abandoned(each["name"], before):
                self._forget(each["name"], each["hash"])
                count += 1
        return count

    # One try

    def _look(self, request: CommitRequest) -> Seen:
        """The branch as it is: its head, and what that holds of everything that the request rests on."""
        if is_own_ref(request.branch):
            raise RefNotFoundError(request.branch)
        keys = [FENCE, *(key.elements for key in sorted(keys_to_judge(request)))]
        try:
            answer = self._raw_contents(ref_path(request.branch), keys)
        except RejectedError as error:
            raise (RefNotFoundError(request.branch) if error.is_absent else error) from error
        head = answer["effectiveReference"]
        present: dict[TableKey, Content] = {}
        strangers: dict[TableKey, str] = {}
        fence_id: str | None = None
        for each in answer["contents"]:
            elements, body = elements_of(each["key"]), each["content"]
            if elements == FENCE:
                fence_id = body["id"]
            elif (key := key_of(elements)) is not None:
                content = content_of(body)
                if content is None:
                    strangers[key] = body["type"]
                else:
                    present[key] = content
        for namespace in namespaces_emptied(request):
            present |= dict(self.contents(head["hash"], namespace=namespace.elements))
        return Seen(request.branch, kind_of(head), head["hash"], present, strangers, fence_id)

    def _judge(self, request: CommitRequest, seen: Seen) -> None:
        is_named = request.incarnation is not None
        judge(request, seen, incarnation_of(seen.branch, self._recorded(seen.branch) if is_named else None))

    def _send(self, request: CommitRequest, seen: Seen, wanted: list[Json]) -> str:
        """Let it land, and return its hash; overtaken, if Nessie compared and found something changed."""
        body = {"commitMeta": commit_meta(request), "operations": wanted}
        try:
            if needs_assignment(request):
                return self._assigned(seen, body)
            return self._committed(seen.branch, seen.hash, body)
        except RejectedError as error:
            if error.is_conflict or error.is_absent:  # of a head that is no part of the branch any more
                keys = [".".join(each.elements or ()) for each in error.conflicts]
                _log.debug("a commit was overtaken", branch=seen.branch, keys=keys, reason=error.message)
                raise _OvertakenError(error, keys) from error
            raise

    def _committed(self, branch: str, at: str, body: Json) -> str:
        answer = self._api.change("POST", f"trees/{ref_path(branch, at)}/history/commit", body=body)
        landed: str = answer["targetBranch"]["hash"]
        return landed

    def _assigned(self, seen: Seen, body: Json) -> str:
        """Commit beside the branch, then move the branch there, if it still is where it was."""
        temporary = f"{TEMPORARIES}{new_ulid(self._clock, self._randomness)}"
        staged = seen.hash
        try:
            try:
                with suppress(RefExistsError):  # by our own request: its name is new
                    self._create(RefKind.BRANCH, temporary, seen.hash)
                hit(Failpoint.NESSIE_COMMIT_AFTER_TEMPORARY)
                staged = self._committed(temporary, seen.hash, body)
            except (LostAnswerError, OutcomeUnknownError, CommitNotFoundError) as error:
                # Whatever became of it, no branch leads there.
                raise UnavailableError(
                    f"{self.name}: nothing was committed: {error.message}", hint="try again"
                ) from error
            hit(Failpoint.NESSIE_COMMIT_AFTER_STAGED)
            self._api.change(
                "PUT",
                f"trees/{ref_path(seen.branch, seen.hash)}",
                params={"type": RefKind.BRANCH.name},
                body={"type": "DETACHED", "hash": staged},
            )
        finally:
            self._forget(temporary, staged)
        return staged

    def _forget(self, temporary: str, at: str) -> None:
        """A temporary that stays is a nuisance, and swept later."""
        with suppress(HeadwaterError):
            self._api.change("DELETE", f"trees/{ref_path(temporary, at)}", params={"type": "BRANCH"}, body=None)

    # What became of it

    def _own(self, request: CommitRequest, above: str, why: HeadwaterError) -> Commit | None:
        """The commit of this request, if it is in the log; whoever cannot look does not know."""
        try:
            return self.outcome(request.branch, request.operation, above=above)
        except HeadwaterError as error:
            raise CommitOutcomeUnknownError(request.branch, request.operation, error.message) from why

    def _settled(self, request: CommitRequest, above: str, operations_sent: int, lost: LostAnswerError) -> Commit:
        """The commit whose answer was lost; one that is not in the log by the time a server gives up never will be."""
        lost_at = self._clock.monotonic()
        while True:
            is_last = self._clock.monotonic() >= lost_at + settle_seconds(operations_sent)
            found = self._own(request, above, lost)
            if found is not None:
                return found
            if is_last:
                raise UnavailableError(
                    f"nothing was committed: {lost.message}", hint="try again", operation=request.operation
                ) from lost
            self._clock.sleep(_LOOK_EVERY_SECONDS)

    def _reported(self, request: CommitRequest, landed: str) -> Commit:
        try:
            return self.commit_at(landed)
        except (UnavailableError, CommitNotFoundError) as error:
            raise CommitOutcomeUnknownError(
                request.branch, request.operation, f"it was committed as {landed}, which cannot be read: {error}"
            ) from error
