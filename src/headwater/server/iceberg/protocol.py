"""How a change of the Iceberg protocol becomes one commit.

Promise: a request that is answered with success is one commit of its branch. Any answer but 500 says that it is not,
and never will be (P5).

Invariants:

    1  There is one door: everything is a wish, and the publisher takes it. Nothing is moved here.
    2  A change is drafted on one commit of the branch. Everything that the draft rests on is in the wish: what the
       client requires is judged on the version that the wish expects, namespaces and names that were looked up are
       expected too, and so is every table that was read for the sake of a constraint (P8).
    3  Who loses a race drafts again on the new head. The client hears of it only when what it requires is not so there.
    4  After the publisher has said yes, an error is an unknown outcome: the client must not clean up.
    5  A change that was committed before is not said to have lost, however often it is sent: its snapshots are known by
       their manifest lists (resent.py), and one that carries an Idempotency-Key by that (access/requests.py). Each
       draft has an operation of its own, and holds the key only until it is proven absent.

Commit point: that of the publish (publish/protocol.py).

Steps, and what a crash after each leaves behind:

    claim the key    a key that waits for its lease, and is then carried out anew
    draft, judge     files of the client that nothing refers to
    publish          what publish/protocol.py says
    answer           a commit whose client does not know of it, and asks by loading the table
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from headwater.catalog.errors import ExpectedVersionMismatchError, RefConflictError
from headwater.catalog.model import Content, NamespaceContent, Ref, TableContent, TableKey
from headwater.kernel.errors import CorruptError, HeadwaterError, OutcomeUnknownError
from headwater.lake import Lake, Standpoint
from headwater.publish.model import Attempt, Replaced, TableWish, Wish, WriterKind
from headwater.publish.schema.standing import SchemaState
from headwater.publish.schema.wanted import Statement
from headwater.query import QueryOptions
from headwater.server.iceberg.decide import refuse_taken
from headwater.server.iceberg.errors import NotFoundError
from headwater.server.replicas import refuse_unwritable
from headwater.tables.model import NewFile, TableVersion
from headwater.tables.snapshot import Staging

# How often a change is drafted again because somebody else was faster.
DRAFTS = 6
# In how many commits a table is sought that is not there any more.
_LOOKED_BACK = 50

T = TypeVar("T")


class OvertakenError(RefConflictError):
    """The head that was drafted on is the head no more, and something of it was missing."""


@dataclass(frozen=True)
class Draft:
    """What a request comes to on one commit of its branch."""

    message: str
    tables: tuple[TableWish, ...] = ()
    reads: Mapping[TableKey, Content | None] = field(default_factory=dict)
    others: Mapping[TableKey, Replaced] = field(default_factory=dict)
    files: tuple[NewFile, ...] = ()


@dataclass(frozen=True)
class Desk:
    """What a draft is made on: the branch as it is, and what staging needs.

    `past` shows the versions of a table that the branch had lately, the newest first; it may be there no more.
    """

    stand: Standpoint
    staging: Staging
    lake: str
    past: Callable[[TableKey], Iterator[TableContent]] = lambda _: iter(())

    @property
    def state(self) -> SchemaState:
        """The branch as it is."""
        return self.stand.state

    @property
    def options(self) -> QueryOptions:
        """How questions about it are asked."""
        return self.stand.options

    def tables(self, keys: Sequence[TableKey]) -> dict[TableKey, tuple[TableContent, TableVersion]]:
        """The tables as the branch holds them, looked up at once, or the protocol's error."""
        found = self.stand.contents(keys)
        held = {}
        for key in keys:
            content = found.get(key)
            if not isinstance(content, TableContent):
                raise NotFoundError("table", key)
            held[key] = (content, self.stand.open(content))
        return held

    def around(self, key: TableKey) -> dict[TableKey, Content | None]:
        """The namespace that the key is in, which must be there, and stay."""
        parent = key.parent
        if parent is None:
            return {}
        content = self.state.content(parent)
        if not isinstance(content, NamespaceContent):
            raise NotFoundError("namespace", parent)
        return {parent: content}

    def free(self, key: TableKey) -> dict[TableKey, Content | None]:
        """The same for a name that is to be taken; refused when it is."""
        around = self.around(key)
        parent = key.parent
        siblings = self.state.inside(parent) if parent is not None else ()
        refuse_taken(key, self.state.content(key), (each for each in siblings if each.namespace == key.namespace))
        return around


@dataclass(frozen=True)
class Landed:
    """The commit that a request has become; the head, with `is_made` false, when there was nothing to do."""

    hash: str
    is_made: bool = True


Work: TypeAlias = Callable[[Attempt | None], Landed]
# Does the work under an attempt, or says what came of it when the same request was carried out before.
CarryOut: TypeAlias = Callable[[Work], Landed]


class Commits:
    """Takes drafts to commits. Safe to share among threads. `room` lets one more writer in, or refuses."""

    def __init__(self, lake: Lake, room: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._lake = lake
        self._room = room

    def land(self, branch: str, actor: str, drafted: Callable[[Desk], Draft | None], carry_out: CarryOut) -> Landed:
        """The commit that the draft has become."""

        def once(attempt: Attempt | None) -> Landed:
            return self._once(branch, actor, drafted, attempt)

        with self._room():
            return until_it_lands(lambda: carry_out(once))

    def apply(self, branch: str, actor: str, looked_at: Callable[[Ref], Statement], carry_out: CarryOut) -> Landed:
        """Carry out one statement of DDL; what it needs is looked at each time that it is tried."""

        def once(attempt: Attempt | None) -> Landed:
            ref = self._lake.catalog.ref(branch)
            refuse_unwritable(ref)
            statement = looked_at(ref)
            applied = self._lake.change_schema(
                [statement], branch=branch, actor=actor, message=statement.text, attempt=attempt
            )
            return Landed(ref.hash, is_made=False) if applied.commit is None else Landed(applied.commit.hash)

        with self._room():
            return until_it_lands(lambda: carry_out(once))

    def _once(
        self, branch: str, actor: str, drafted: Callable[[Desk], Draft | None], attempt: Attempt | None
    ) -> Landed:
        writing = self._lake.writing
        staging, stand = writing.staging(attempt), self._lake.standpoint(branch)
        ref = stand.state.ref
        refuse_unwritable(ref)
        try:
            draft = drafted(Desk(stand, staging, self._lake.location, lambda key: self._past(ref.hash, key)))
        except CorruptError as error:
            # A file that is missing may have been collected since, if this is the head no more.
            newer = self._lake.catalog.ref(branch)
            if newer.hash == ref.hash:
                raise
            raise OvertakenError(branch, ref.hash, newer.hash) from error
        if draft is None:
            return Landed(ref.hash, is_made=False)
        touched = {*draft.others, *(key for each in draft.tables for key in each.keys)}
        wish = Wish(
            kind=WriterKind.REST,
            actor=actor,
            message=draft.message,
            branch=ref.name,
            branch_incarnation=ref.incarnation,
            operation=staging.operation,
            tables=draft.tables,
            reads={key: each for key, each in draft.reads.items() if key not in touched},
            others=draft.others,
            files=draft.files,
        )
        return Landed(writing.publisher.publish(wish.of(attempt)).hash)

    def _past(self, at_hash: str, key: TableKey) -> Iterator[TableContent]:
        before: Content | None = None
        for commit in self._lake.catalog.log(at_hash, limit=_LOOKED_BACK):
            content = self._lake.catalog.content(commit.hash, [key]).get(key)
            if isinstance(content, TableContent) and content != before:
                yield content
            before = content


def until_it_lands(once: Callable[[], T]) -> T:
    """Try again while somebody else is faster, a few times."""
    for left in reversed(range(DRAFTS)):
        try:
            return once()
        except (ExpectedVersionMismatchError, OvertakenError):
            if not left:
                raise
    raise AssertionError("unreachable")


def answered_too_late(at_hash: str, error: HeadwaterError) -> OutcomeUnknownError:
    """The error of a change that was made, and whose answer could not be."""
    return OutcomeUnknownError(
        f"the change is commit {at_hash}, and cannot be shown: {error.message}", operation=at_hash, hint="load it again"
    )
