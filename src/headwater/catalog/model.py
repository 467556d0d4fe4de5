"""What a catalog talks about: keys, contents, refs, commits, and the wish to commit."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import total_ordering
from typing import assert_never

from headwater.catalog.names import (
    DEFAULT_NAMESPACE,
    check_elements,
    check_ref_name,
    check_text,
    has_control_characters,
)
from headwater.kernel.errors import UsageError
from headwater.kernel.ids import Ulid

OPERATION_PROPERTY = "headwater.operation"


@total_ordering
@dataclass(frozen=True)
class TableKey:
    """The name of a table, a view or a namespace: the namespace that it is in, and its own name there."""

    namespace: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        check_elements(self.elements)

    @classmethod
    def parse(cls, text: str) -> TableKey:
        """The key of a table that `text` spells, `a.b.t`; an unqualified name is in the namespace `default`."""
        *namespace, name = text.split(".")
        return cls(tuple(namespace) or (DEFAULT_NAMESPACE,), name)

    @classmethod
    def of_namespace(cls, namespace: tuple[str, ...]) -> TableKey:
        """The key under which a namespace itself is stored."""
        check_elements(namespace)
        return cls(namespace[:-1], namespace[-1])

    @property
    def elements(self) -> tuple[str, ...]:
        """All parts of the name, outermost first."""
        return (*self.namespace, self.name)

    @property
    def parent(self) -> TableKey | None:
        """The key of the namespace that it is in; None at the top."""
        return TableKey.of_namespace(self.namespace) if self.namespace else None

    def is_in(self, namespace: tuple[str, ...]) -> bool:
        """Whether it is in this namespace, at any depth."""
        return self.namespace[: len(namespace)] == namespace

    def __str__(self) -> str:
        return ".".join(self.elements)

    def __lt__(self, other: TableKey) -> bool:
        return self.elements < other.elements


@dataclass(frozen=True)
class TableContent:
    """One version of a table. `content_id` is the table's incarnation, and each version has its own metadata file."""

    content_id: str
    metadata_location: str
    snapshot_id: int | None
    schema_id: int
    spec_id: int
    sort_order_id: int


@dataclass(frozen=True)
class ViewContent:
    """One version of a view."""

    content_id: str
    metadata_location: str
    version_id: int
    schema_id: int


@dataclass(frozen=True)
class NamespaceContent:
    """A namespace and its properties."""

    content_id: str
    properties: Mapping[str, str] = field(default_factory=dict)


Content = TableContent | ViewContent | NamespaceContent


def describe(content: Content | None) -> str:
    """A version in a few words, for errors."""
    match content:
        case None:
            return "absent"
        case NamespaceContent():
            return f"namespace {content.content_id} {dict(content.properties)}"
        case TableContent():
            ids = f"{content.snapshot_id}, {content.schema_id}, {content.spec_id}, {content.sort_order_id}"
            return f"table {content.content_id} at {content.metadata_location} (snapshot, schema, spec, order: {ids})"
        case ViewContent():
            ids = f"{content.version_id}, {content.schema_id}"
            return f"view {content.content_id} at {content.metadata_location} (version, schema: {ids})"
        case _:
            assert_never(content)


class RefKind(enum.StrEnum):
    """What a ref is for: a branch takes commits, a tag only names one."""

    BRANCH = "branch"
    TAG = "tag"


@dataclass(frozen=True)
class Ref:
    """A name for a commit. `incarnation` tells it from an earlier ref of the same name."""

    name: str
    kind: RefKind
    hash: str
    incarnation: Ulid


@dataclass(frozen=True)
class Commit:
    """One entry of the log. `committed_at` is UTC and never precedes the first parent's."""

    hash: str
    parents: tuple[str, ...]
    actor: str
    message: str
    properties: Mapping[str, str]
    committed_at: datetime

    @property
    def operation(self) -> Ulid | None:
        """The identity by which its writer knows it again."""
        value = self.properties.get(OPERATION_PROPERTY)
        return None if value is None else Ulid(value)


@dataclass(frozen=True)
class Horizons:
    """Moments that only rise. None: not published yet, nothing is behind it.

    Commits that were superseded before `history` may have been collected, unless a ref stands on them (hazard P6).
    What was staged before `staging`, and nothing refers to, may have been swept; a change that began before it is
    refused (hazard P10).
    """

    history: datetime | None = None
    staging: datetime | None = None


@dataclass(frozen=True)
class Retained:
    """A commit that is stored, whether or not a ref leads to it.

    `is_readable`: it is whole and not behind the horizon, so that what it holds can be asked for, and a ref may be made
    on it.
    """

    commit: Commit
    is_readable: bool


@dataclass(frozen=True)
class Put:
    """Make the key hold this content."""

    content: Content


@dataclass(frozen=True)
class Delete:
    """Make the key hold nothing."""


Change = Put | Delete


@dataclass(frozen=True)
class CommitRequest:
    """The wish to commit: what shall change, and everything that the decision to change it rests on.

    `expected` names the version of each key that is touched and of each that was only read; None means absent. A
    branch that was deleted and made again on the same head is told apart only where `incarnation` is named. Whoever
    puts content of an older commit, to revert or to merge, holds that commit until the new one is reported. Whoever
    puts content that leads to newly staged files says when it began to stage them: they may be swept since (P10).

    `head` None says that the expected versions alone decide: whatever the head is by then, the commit may follow on it.
    """

    branch: str
    head: str | None
    changes: Mapping[TableKey, Change]
    expected: Mapping[TableKey, Content | None]
    actor: str
    message: str
    operation: Ulid
    properties: Mapping[str, str] = field(default_factory=dict)
    merge_parent: str | None = None
    incarnation: Ulid | None = None
    began_at: datetime | None = None

    def __post_init__(self) -> None:
        check_ref_name(self.branch)
        self._check_words()
        if self.merge_parent is not None:
            check_merge(self.merge_parent, self.head)
        for key, change in self.changes.items():
            self._check_change(key, change)

    @property
    def all_properties(self) -> dict[str, str]:
        """The properties with which it is stored: its own, and the operation's."""
        return {**self.properties, OPERATION_PROPERTY: self.operation}

    def _check_words(self) -> None:
        if not self.message:
            raise UsageError("a commit needs a message", hint="say what changes, and why")
        if not self.actor or has_control_characters(self.actor):
            raise UsageError(f"{self.actor!r} cannot be a commit's actor", hint="who or what changes the lake")
        if OPERATION_PROPERTY in self.properties:
            raise UsageError(f"the property {OPERATION_PROPERTY} is set by the commit itself")
        for what, text in (("actor", self.actor), ("message", self.message)):
            check_text(text, what)
        for name, value in self.properties.items():
            check_text(name, "property")
            check_text(value, f"property {name}")

    def _check_change(self, key: TableKey, change: Change) -> None:
        if key not in self.expected:
            raise UsageError(
                f"{key} is changed, but its expected version is not named", hint="None if it is new", table=str(key)
            )
        if isinstance(change, Put):
            _check_content(key, change.content)
        before = self.expected[key]
        match change:
            case Delete() if before is None:
                raise UsageError(f"{key} is to be deleted, but expected to be absent", table=str(key))
            case Put(content) if before is not None:
                if type(content) is not type(before) or content.content_id != before.content_id:
                    raise UsageError(
                        f"{key} would become something else: {describe(content)} instead of {describe(before)}",
                        hint="delete it in one commit, and create it in another",
                        table=str(key),
                    )
            case Put(TableContent() | ViewContent()) if not key.namespace:
                raise UsageError(f"{key} is in no namespace", hint=f"like {DEFAULT_NAMESPACE}.{key}", table=str(key))
            case _:
                pass


def check_merge(merge_parent: str, head: str | None) -> None:
    """Refuse to merge a head into itself."""
    if merge_parent == head:
        raise UsageError(
            f"{head} is the head itself, and cannot be merged into it",
            hint="leave the merge parent out",
            hash=head,
        )


def _check_content(key: TableKey, content: Content) -> None:
    """What is stored must be text that every backend can store."""
    if not content.content_id:
        raise UsageError(f"{key} has no content id", hint="a new table, view or namespace has a ULID", table=str(key))
    check_text(content.content_id, f"{key}: content id")
    if isinstance(content, NamespaceContent):
        for name, value in content.properties.items():
            check_text(name, f"{key}: property")
            check_text(value, f"{key}: property {name}")
    else:
        check_text(content.metadata_location, f"{key}: metadata location")


@dataclass(frozen=True)
class Difference:
    """What a key held at one commit, and what it holds at another."""

    key: TableKey
    before: Content | None
    after: Content | None
