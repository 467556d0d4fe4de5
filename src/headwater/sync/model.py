"""What all steps of a sync talk about: the commit of `main` that a replica shows, and what was noted with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from headwater.catalog.model import Commit
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
# A property of a commit of `main`, by writers that say when the last of their files was stored.
WRITE_ENDED_AT = "writer_data_write_end_ts"


@dataclass(frozen=True)
class Origin:
    """The commit of `main` that a replica shows."""

    hash: str
    created_at: datetime


@dataclass(frozen=True)
class Replica:
    """A replica branch as it stands; one that was never promoted has no origin."""

    branch: str
    head: str
    origin: Origin | None = None
    made_with: str | None = None

    def shown(self, made_with: str) -> Origin | None:
        """The origin, if what it shows was localised in just this way."""
        return self.origin if self.made_with == made_with else None


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
