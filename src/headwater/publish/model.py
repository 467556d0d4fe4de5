"""What publishing talks about: the wish of a writer, its durable note of intent, and what a recoverer makes of it."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from headwater.catalog.model import Content, TableContent, TableKey
from headwater.kernel.ids import Ulid, ulid_of
from headwater.tables.model import NewFile, Staged

RECOVERY_ACTOR = "headwater:recovery"
# When the last file of a change was stored, as the log tells it: what replicas measure their lag from.
WRITE_ENDED_AT = "writer_data_write_end_ts"
# What a change came to, as JSON: whoever made it and heard no answer finds it in the log.
DID = "headwater.did"


class WriterKind(enum.StrEnum):
    """Who moves heads. Each takes the same four steps."""

    TRANSACTION = "transaction"
    LOAD = "load"
    SCHEMA_APPLY = "schema-apply"
    MERGE = "merge"
    OPTIMIZE = "optimize"
    INDICES = "indices"
    REPAIR = "repair"
    REST = "rest"


@dataclass(frozen=True)
class Attempt:
    """One try at a change: the identity under which it lands, and the moment after which it lands no more.

    Whoever knows both can tell later what became of it, whether or not it heard an answer. `properties` are what the
    log shall say of it.
    """

    operation: Ulid
    deadline: datetime | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TableWish:
    """What shall become of one table: a staged change, or None to drop it.

    `pinned` is what the branch held when the table was first touched, None for a new table. A table that is renamed is
    pinned under `renamed_from` until the commit, and its sequence of versions goes on: it belongs to its location.
    `made_from` is the version whose document was changed, where that is another than the pinned one (a merge).
    """

    key: TableKey
    pinned: TableContent | None
    staged: Staged | None
    renamed_from: TableKey | None = None
    made_from: TableContent | None = None

    @property
    def keys(self) -> tuple[TableKey, ...]:
        """Every key that the wish touches."""
        return (self.key,) if self.renamed_from is None else (self.key, self.renamed_from)


@dataclass(frozen=True)
class Replaced:
    """What a key holds before, and what it shall hold; None is nothing."""

    before: Content | None
    after: Content | None


@dataclass(frozen=True)
class Wish:
    """Everything that a writer wants to land as one commit, and everything that it rests on.

    `reads` are the versions of tables that were only read (P8). `others` are views and namespaces: they have no head,
    and change by the commit alone. `files` are what they need, stored before anything else. `merge_parent` is the
    commit that is merged; whoever wishes that holds it until the wish is published. After `deadline` it is not
    committed any more: its note's lease ends then, at the latest.
    """

    kind: WriterKind
    actor: str
    message: str
    branch: str
    branch_incarnation: Ulid
    operation: Ulid
    tables: tuple[TableWish, ...]
    reads: Mapping[TableKey, Content | None] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[TableKey, Replaced] = field(default_factory=dict)
    files: tuple[NewFile, ...] = ()
    merge_parent: str | None = None
    deadline: datetime | None = None

    def of(self, attempt: Attempt | None) -> Wish:
        """The same wish, under the terms of an attempt; the attempt's operation is what it was staged with."""
        if attempt is None:
            return self
        assert attempt.operation == self.operation
        properties = {**self.properties, **attempt.properties}
        return replace(self, deadline=attempt.deadline, properties=properties)

    def stored(self, at: datetime) -> Wish:
        """The same wish, all of whose files were stored by this moment, unless its writer said so itself."""
        told = at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return replace(self, properties={WRITE_ENDED_AT: told, **self.properties})


@dataclass(frozen=True)
class PlannedHead:
    """One head that is to move: along which sequence, from which id, to which identity, and what will be pinned then.

    `path` is the root of the sequence in the lake. `expected_id` is the id that the plan follows on, 0 where the
    sequence is empty: a new table, or the first write of a branch to a table that it shares. `pinned` is held under
    `pinned_key`, which is another than `key` for a table that is renamed.
    """

    key: TableKey
    path: str
    incarnation: str
    pinned: TableContent | None
    expected_id: int
    identity: Ulid
    planned: TableContent
    renamed_from: TableKey | None = None

    @property
    def pinned_key(self) -> TableKey:
        """Where the branch holds the table until the commit."""
        return self.renamed_from or self.key

    @property
    def keys(self) -> tuple[TableKey, ...]:
        """Every key that the move touches."""
        return (self.key,) if self.renamed_from is None else (self.key, self.renamed_from)

    @property
    def planned_id(self) -> int:
        """The id that the planned version takes."""
        return self.expected_id + 1


@dataclass(frozen=True)
class Sidecar:
    """The durable note of intent, written before the first head moves.

    While `lease_until` lies ahead its writer may be alive, and no other process touches its heads (P1). `drops` are
    tables that go: they have no head to move. `others` are views and namespaces, which have none at all. `since` is the
    branch's head when the plan was made: whatever becomes of the plan stands above it in the log.
    """

    operation: Ulid
    kind: WriterKind
    actor: str
    message: str
    branch: str
    branch_incarnation: Ulid
    process: Ulid
    lease_until: datetime
    heads: tuple[PlannedHead, ...]
    drops: Mapping[TableKey, TableContent] = field(default_factory=dict)
    reads: Mapping[TableKey, Content | None] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[TableKey, Replaced] = field(default_factory=dict)
    merge_parent: str | None = None
    since: str | None = None

    @property
    def keys(self) -> tuple[TableKey, ...]:
        """Every key whose head moves."""
        return tuple(key for head in self.heads for key in head.keys)

    @property
    def rests_on(self) -> dict[TableKey, Content | None]:
        """What the branch must hold beside the pins of the heads, for the plan to be carried out."""
        return {
            **self.reads,
            **{head.key: None for head in self.heads if head.renamed_from is not None},
            **self.drops,
            **{key: each.before for key, each in self.others.items()},
        }

    def restore_identity(self, head: PlannedHead) -> Ulid:
        """The identity of the object that takes the plan's place in a rollback: the same for every recoverer (P1)."""
        return derived(f"restore/{self.operation}/{head.path}")

    @property
    def rollback_operation(self) -> Ulid:
        """The operation of the commit that a rollback makes: it must not be taken for the writer's own."""
        return derived(f"rollback/{self.operation}")

    @property
    def audit_operation(self) -> Ulid:
        """The operation of the commit that only tells of a recovery."""
        return audit_operation(self.operation)


def audit_operation(operation: Ulid) -> Ulid:
    """The operation of the commit that only tells what became of this one."""
    return derived(f"audit/{operation}")


def derived(text: str) -> Ulid:
    """An identity that everybody derives alike from the same words."""
    return ulid_of(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big"))


class HeadState(enum.StrEnum):
    """Where a head is found, beside what a sidecar planned for it."""

    NOT_MOVED = "not moved"
    AS_PLANNED = "moved as planned"
    RESTORED = "restored"
    MOVED_ONCE = "moved once by somebody else"
    MOVED_SEVERAL_TIMES = "moved several times"
    BEHIND_PIN = "behind the pin"
    GONE = "its table is gone"


class Verdict(enum.StrEnum):
    """What becomes of a sidecar: all or nothing."""

    PUBLISHED = "published"
    FORWARD = "rolled forward"
    BACK = "rolled back"
    DISCARD = "discarded"
    ABORT = "aborted"


@dataclass(frozen=True)
class HeadFacts:
    """What was found of one planned head.

    `pinned` is what the branch holds now. `latest_id` is the newest object of the sequence, 0 when there is none.
    `writer_at_planned` and `writer_after` are the identities at the planned id and at the one behind it.
    """

    pinned: Content | None
    pinned_id: int
    latest_id: int
    writer_at_planned: Ulid | None
    writer_after: Ulid | None


@dataclass(frozen=True)
class Recovered:
    """What a sidecar means, and what a recovery did about it: the commit that it made, if it has made one."""

    operation: Ulid
    verdict: Verdict
    states: Mapping[TableKey, HeadState]
    commit: str | None = None
