"""What is ours on a Nessie server, and what its API speaks of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.catalog.model import Content, RefKind, TableKey

# The hash before the first commit: where a branch begins that begins empty.
NO_ANCESTOR = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"

# Refs below this are ours, and shown to nobody.
OWN_REFS = "headwater/"
# Which incarnation each ref is: one key for each ref that was made here.
REF_RECORDS = f"{OWN_REFS}refs"
# Commits that must follow on one head are made on a branch of their own, named by a ULID, before they are assigned.
TEMPORARIES = f"{OWN_REFS}commit/"

# The key that every commit to a replica branch rewrites (R1). No key of a lake has a dot in a part of its name.
FENCE = ("headwater.fence",)
# Branches that only sync writes to, and always through us.
REPLICA_PREFIX = "main_replica_"

MERGE_PARENT_PROPERTY = "headwater.merge-parent"

# By then a server has ended a commit, one way or the other: Nessie gives up after 5 seconds, unless it is told
# otherwise (`nessie.version.store.persist.commit-timeout-millis`).
SETTLE_SECONDS = 15.0
# That limit is one of its retries: a single try takes as long as its keys do (6 ms each on a busy machine).
SETTLE_SECONDS_FOR_EACH = 0.02

# How far commit times of several servers' clocks may be out of order, in commits; see `decide.commit_times`.
LOOKBACK = 8


@dataclass(frozen=True)
class Conflict:
    """One reason why Nessie did not commit: its name for it, and the key in question, if there is one."""

    kind: str
    elements: tuple[str, ...] | None


@dataclass(frozen=True)
class Seen:
    """A branch as it was found: its head, and what that holds for the keys that matter.

    `strangers` are keys among them that hold something that a lake does not know, with its kind. `fence_id` is the
    content id of the fence, where there is one.
    """

    branch: str
    kind: RefKind
    hash: str
    present: Mapping[TableKey, Content] = field(default_factory=dict)
    strangers: Mapping[TableKey, str] = field(default_factory=dict)
    fence_id: str | None = None


Json = dict[str, Any]
