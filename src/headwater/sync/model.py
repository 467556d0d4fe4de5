"""What all steps of a sync talk about: the commit of `main` that a replica shows, and what was noted with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from headwater.catalog.model import Commit, TableKey
from headwater.catalog.names import DEFAULT_BRANCH

# The branch that replicas follow.
ORIGIN_BRANCH = DEFAULT_BRANCH
# Who promotes.
SYNC_ACTOR = "headwater:sync"

# Properties of a commit of a replica branch.
ORIGIN_HASH = "origin_main_hash"
ORIGIN_CREATED_AT = "origin_main_created_ts"
COPY_ENDED_AT = "data_copy_end_ts"
LOCALIZE_ENDED_AT = "localize_end_ts"
REPLICA_CREATED_AT = "replica_commit_created_ts"
# By which mapping, history and writer its files were localised: with another one nothing of it is taken for known.
MADE_WITH = "headwater.sync.made-with"
# Names that the replica does not show as its origin has them: subsets have gone on with them, or made room for others.
AHEAD = "headwater.sync.ahead"
# A property of a commit of `main`, by writers that say when the last of their files was stored.
WRITE_ENDED_AT = "writer_data_write_end_ts"


@dataclass(frozen=True)
class Origin:
    """The commit of `main` that a replica shows."""

    hash: str
    created_at: datetime


@dataclass(frozen=True)
class Replica:
    """A replica branch as it stands; one that was never promoted has no origin, and one that is not there no head.

    `ahead` are the names that it does not show as its origin has them.
    """

    branch: str
    head: str
    origin: Origin | None = None
    made_with: str | None = None
    ahead: tuple[TableKey, ...] = ()

    def shown(self, made_with: str) -> Origin | None:
        """The origin, if what it shows was localised in just this way."""
        return self.origin if self.made_with == made_with else None

    def is_at(self, target: Origin, made_with: str) -> bool:
        """Whether it shows just that, all of it, localised in just this way."""
        shown = self.shown(made_with)
        return shown is not None and shown.hash == target.hash and not self.ahead


@dataclass(frozen=True)
class Times:
    """When the steps of a promoted commit ended, as its properties say."""

    origin_created_at: datetime
    copy_ended_at: datetime
    localize_ended_at: datetime
    replica_created_at: datetime

    @property
    def properties(self) -> dict[str, str]:
        """The properties, without the origin's hash."""
        return {
            ORIGIN_CREATED_AT: spelled(self.origin_created_at),
            COPY_ENDED_AT: spelled(self.copy_ended_at),
            LOCALIZE_ENDED_AT: spelled(self.localize_ended_at),
            REPLICA_CREATED_AT: spelled(self.replica_created_at),
        }


def origin_of(properties: Mapping[str, str]) -> Origin | None:
    """The origin that the properties of a replica's commit name; None when they name none that can be read."""
    named, created = properties.get(ORIGIN_HASH), moment(properties.get(ORIGIN_CREATED_AT))
    return None if not named or created is None else Origin(named, created)


def ahead_of(properties: Mapping[str, str]) -> tuple[TableKey, ...] | None:
    """The names that a replica does not show as its origin has them; None when that cannot be read."""
    try:
        return tuple(TableKey(tuple(each[:-1]), each[-1]) for each in json.loads(properties.get(AHEAD, "[]")))
    except (ValueError, TypeError, LookupError):
        return None


def ahead(keys: Iterable[TableKey]) -> dict[str, str]:
    """The property that says so; none when there are none."""
    names = sorted({each.elements for each in keys})
    return {AHEAD: json.dumps(names, ensure_ascii=False)} if names else {}


def times_of(properties: Mapping[str, str]) -> Times | None:
    """When its steps ended; None when it does not say."""
    origin, copied = moment(properties.get(ORIGIN_CREATED_AT)), moment(properties.get(COPY_ENDED_AT))
    localised, created = moment(properties.get(LOCALIZE_ENDED_AT)), moment(properties.get(REPLICA_CREATED_AT))
    if origin is None or copied is None or localised is None or created is None:
        return None
    return Times(origin, copied, localised, created)


def origin_to_show(commit: Commit) -> Origin:
    """A commit of `main`, as what a replica may show."""
    return Origin(commit.hash, commit.committed_at)


def spelled(at: datetime) -> str:
    """A moment as a property holds it: UTC, ISO 8601."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def moment(text: str | None) -> datetime | None:
    """The moment that a property holds; None when it holds none, or one whose zone is not said."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo is not None else None
