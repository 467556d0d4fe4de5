"""Refs on Nessie, and which incarnation each is.

Nessie knows a ref by its name and its hash. Whether a branch was deleted and made again on the same head is kept beside
it: the branch `headwater/refs` has a key for each ref that was made here, with a ULID. A ref without a record (another
tool made it, or its maker died) has the one incarnation that its name stands for.

    create    the ref, which has one winner; then its record
    delete    its record; then the ref

Whatever a crash leaves between the two, a ref is never taken for an earlier one of its name: at worst it is taken for
another than it is, and whoever worked on it reads it anew. Refs that other tools delete and make again keep their
record; that is as good as it gets without those tools.
"""

from __future__ import annotations

from contextlib import suppress

from headwater.catalog.errors import CatalogBusyError, CommitNotFoundError, RefConflictError, RefExistsError
from headwater.catalog.judging import judge_ref
from headwater.catalog.model import Ref, RefKind
from headwater.catalog.names import DEFAULT_BRANCH, check_ref_name
from headwater.catalog.nessie.codec import key_to_json, own_value, own_value_of
from headwater.catalog.nessie.decide import check_hash, check_not_own, incarnation_of, is_own_ref
from headwater.catalog.nessie.model import NO_ANCESTOR, REF_RECORDS, Json
from headwater.catalog.nessie.reading import NessieReader
from headwater.catalog.nessie.transport import LostAnswerError, NessieApi, RejectedError, ref_path
from headwater.kernel.clock import Clock
from headwater.kernel.errors import HeadwaterError, OutcomeUnknownError, RefusedError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.logs import Log
from headwater.kernel.randomness import Randomness
from headwater.kernel.retry import Retry

_log = Log("catalog")


class NessieRefs(NessieReader):
    """The refs of one lake."""

    def __init__(self, api: NessieApi, name: str, *, retry: Retry) -> None:
        super().__init__(api, name)
        self._retry = retry
        self._clock: Clock = retry.clock
        self._randomness: Randomness = retry.randomness

    def create_ref(self, kind: RefKind, name: str, at: str) -> Ref:
        """A new branch or tag at an existing commit; at `NO_ANCESTOR` it begins empty."""
        check_not_own(check_ref_name(name))
        self._create(kind, name, check_hash(at))
        hit(Failpoint.NESSIE_REF_AFTER_CREATE)
        incarnation = new_ulid(self._clock, self._randomness)
        try:
            self._record(name, incarnation)
        except HeadwaterError as error:
            # The ref is there. Without a record it is one that anybody could have made, which holds nobody up.
            _log.warning("a ref has no record of its own", ref=name, error=str(error))
            return Ref(name, kind, at, incarnation_of(name, self._recorded(name)))
        return Ref(name, kind, at, incarnation)

    def create_empty_branch(self, name: str) -> Ref:
        """A new branch without history."""
        return self.create_ref(RefKind.BRANCH, name, NO_ANCESTOR)

    def delete_ref(self, name: str, expected: str, *, incarnation: Ulid | None = None) -> None:
        """Remove the ref while it is at `expected`, and of this incarnation if one is named."""
        if name == DEFAULT_BRANCH:
            raise RefusedError(f"{name} is the default branch, and stays", hint="assign it another commit", ref=name)
        ref = self.ref(name)
        judge_ref(ref, expected, incarnation)
        recorded = self._recorded(name)
        if recorded is not None:
            self._record(name, None)
            hit(Failpoint.NESSIE_REF_AFTER_FORGET)
        try:
            self._move("DELETE", ref, expected, None)
        except HeadwaterError as error:
            if recorded is not None and not isinstance(error, OutcomeUnknownError):
                with suppress(HeadwaterError):  # without it, who works on the branch reads it anew
                    self._record(name, recorded)
            raise

    def assign_ref(self, name: str, to: str, expected: str, *, incarnation: Ulid | None = None) -> Ref:
        """Move the ref from `expected` to another existing commit."""
        self._require_commit(to)
        ref = self.ref(name)
        judge_ref(ref, expected, incarnation)
        self._move("PUT", ref, expected, {"type": "DETACHED", "hash": to})
        return Ref(name, ref.kind, to, ref.incarnation)

    def _create(self, kind: RefKind, name: str, at: str) -> None:
        """The ref itself, without a record."""
        try:
            self._api.change(
                "POST",
                "trees",
                params={"name": name, "type": kind.name},
                body={"type": "DETACHED", "hash": at},
            )
        except RejectedError as error:
            if error.is_absent:
                raise CommitNotFoundError(at) from error
            if error.is_conflict:
                # Of our own refs nobody is told where they are.
                raise RefExistsError(name, at if is_own_ref(name) else self._raw_ref(name)["hash"]) from error
            raise
        except LostAnswerError as error:
            raise _unknown(name, "made", error) from error

    def _move(self, method: str, ref: Ref, expected: str, to: Json | None) -> None:
        """Compare the ref with `expected`, and move or remove it."""
        try:
            self._api.change(method, f"trees/{ref_path(ref.name, expected)}", params={"type": ref.kind.name}, body=to)
        except RejectedError as error:
            if error.is_conflict or error.is_absent:
                raise RefConflictError(ref.name, expected, self._raw_ref(ref.name)["hash"]) from error
            raise
        except LostAnswerError as error:
            raise _unknown(ref.name, "moved", error) from error

    def _require_commit(self, at: str) -> None:
        if at != NO_ANCESTOR:
            self.commit_at(at)

    def _record(self, name: str, incarnation: Ulid | None) -> None:
        """Write down which ref of this name it is, or that there is none; each record is a key of its own."""
        patience = self._retry.patience()
        while True:
            held, head = self._held_record(name)
            if held is None and incarnation is None:
                return
            operation: Json = {"type": "DELETE", "key": key_to_json((name,))}
            if incarnation is not None:
                value = own_value(incarnation, held["id"] if held else None)
                operation = {"type": "PUT", "key": key_to_json((name,)), "content": value}
            body = {"commitMeta": {"message": f"which {name} it is"}, "operations": [operation]}
            try:
                self._api.change("POST", f"trees/{ref_path(REF_RECORDS, head)}/history/commit", body=body)
            except (RejectedError, LostAnswerError) as error:
                if isinstance(error, RejectedError) and not error.is_conflict:
                    raise
                if not patience.wait():
                    raise CatalogBusyError(self.name) from error
            else:
                return

    def _held_record(self, name: str) -> tuple[Json | None, str]:
        """The record as it is, and the head of the branch of records, which is made if there is none."""
        try:
            answer = self._raw_contents(ref_path(REF_RECORDS), [(name,)])
        except RejectedError as error:
            if not error.is_absent:
                raise
            with suppress(RefExistsError):
                self._create(RefKind.BRANCH, REF_RECORDS, NO_ANCESTOR)
            return None, NO_ANCESTOR
        held = [each["content"] for each in answer["contents"] if own_value_of(each["content"]) is not None]
        return (held[0] if held else None), answer["effectiveReference"]["hash"]


def _unknown(name: str, what: str, error: LostAnswerError) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"whether {name} was {what} is not known: {error.message}",
        operation=name,
        hint=f"look where {name} is before doing it again",
        ref=name,
    )
