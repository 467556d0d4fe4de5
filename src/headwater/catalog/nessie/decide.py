"""The decisions of the catalog on Nessie, without I/O. What a commit may do is judged as in the embedded catalog."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import assert_never

from headwater.catalog.errors import CommitNotFoundError
from headwater.catalog.judging import judge_namespaces, judge_ref, judge_versions
from headwater.catalog.model import (
    CommitRequest,
    Content,
    Delete,
    NamespaceContent,
    Put,
    Ref,
    RefKind,
    TableKey,
    check_merge,
)
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.catalog.nessie.codec import content_to_json, key_to_json, own_value
from headwater.catalog.nessie.model import (
    FENCE,
    LOOKBACK,
    MERGE_PARENT_PROPERTY,
    OWN_REFS,
    REPLICA_PREFIX,
    SETTLE_SECONDS,
    SETTLE_SECONDS_FOR_EACH,
    TEMPORARIES,
    Json,
    Seen,
)
from headwater.kernel.errors import UsageError
from headwater.kernel.ids import Ulid, parse_ulid, time_of, ulid_of

_HASH = re.compile(r"[0-9a-f]{64}")


def check_hash(at: str) -> str:
    """`at` itself when it could be the hash of a commit."""
    if not _HASH.fullmatch(at):
        raise CommitNotFoundError(at, "a hash has 64 hex digits")
    return at


def is_own_ref(name: str) -> bool:
    """Whether the ref is ours, and no part of the lake."""
    return name.startswith(OWN_REFS)


def check_not_own(name: str) -> str:
    """`name` itself, unless it is kept for us."""
    if is_own_ref(name):
        raise UsageError(f"{name!r} is kept for Headwater itself", hint=f"a name outside of {OWN_REFS}", ref=name)
    return name


def is_fenced(branch: str) -> bool:
    """Whether every commit to the branch rewrites its fence (R1)."""
    return branch.startswith(REPLICA_PREFIX)


def incarnation_of(name: str, recorded: Ulid | None) -> Ulid:
    """Which ref of this name it is: as recorded by who made it here, or the one that every unrecorded ref has.

    The default branch cannot be deleted, so there is only one of it, and nobody needs to look.
    """
    if name != DEFAULT_BRANCH and recorded is not None:
        return recorded
    return ulid_of(int.from_bytes(hashlib.sha256(f"nessie-ref/{name}".encode()).digest()[:16], "big"))


def judge(request: CommitRequest, seen: Seen, incarnation: Ulid) -> None:
    """Whether the request may land on the head that was seen. Versions come before the head: see the port."""
    if seen.kind is not RefKind.BRANCH:
        raise UsageError(f"{seen.branch} is a tag, and takes no commits", hint="commit to a branch", ref=seen.branch)
    for key, kind in sorted(seen.strangers.items()):
        raise UsageError(
            f"{key} holds something that a lake does not know, of kind {kind}",
            hint="remove or rename it with the tool that made it",
            table=str(key),
        )
    judge_versions(request, seen.present)
    judge_ref(Ref(seen.branch, seen.kind, seen.hash, incarnation), request.head, request.incarnation)
    judge_namespaces(request.changes, seen.present)
    if request.merge_parent is not None:
        check_merge(request.merge_parent, seen.hash)


def needs_assignment(request: CommitRequest) -> bool:
    """Whether only a compare-and-swap of the branch itself keeps what the request promises.

    Nessie compares the keys that a commit names, not the head. On a fenced branch the fence is such a key, and there is
    nobody else; on any other, engines commit without us.
    """
    return request.head is not None and not is_fenced(request.branch)


def operations(request: CommitRequest, seen: Seen, fence: Ulid) -> list[Json]:
    """What Nessie is told: every key that changes, and every key that was only read, which must not have (P8).

    A commit has at least one operation: that which changes nothing names one key that is as it is.
    """
    made: list[Json] = []
    moved = {
        expected.content_id
        for key, change in request.changes.items()
        if isinstance(change, Delete) and (expected := request.expected[key]) is not None
    }
    for key, change in sorted(request.changes.items()):
        match change:
            case Put(content):
                made.append(_put(key, content, request.expected[key], moved))
            case Delete():
                made.append({"type": "DELETE", "key": key_to_json(key.elements)})
            case _:
                assert_never(change)
    read = sorted(key for key in request.expected if key not in request.changes)
    made += [{"type": "UNCHANGED", "key": key_to_json(key.elements)} for key in read]
    if is_fenced(request.branch):
        made.append({"type": "PUT", "key": key_to_json(FENCE), "content": own_value(fence, seen.fence_id)})
    return made or [{"type": "UNCHANGED", "key": key_to_json(FENCE)}]


def _put(key: TableKey, content: Content, before: Content | None, moved: set[str]) -> Json:
    """A content that is there, or is moved here by the same commit, keeps its id; Nessie gives a new one its own."""
    is_known = before is not None or content.content_id in moved
    body = content_to_json(key, content, content.content_id if is_known else None)
    return {"type": "PUT", "key": key_to_json(key.elements), "content": body}


def settle_seconds(operations_sent: int) -> float:
    """How long a commit whose answer was lost may still come, from the moment when its sender gave up."""
    return SETTLE_SECONDS + SETTLE_SECONDS_FOR_EACH * operations_sent


def commit_meta(request: CommitRequest) -> Json:
    """What the log will say."""
    properties: Mapping[str, str] = request.all_properties
    if request.merge_parent is not None:
        properties = {**properties, MERGE_PARENT_PROPERTY: request.merge_parent}
    return {"message": request.message, "authors": [request.actor], "properties": dict(properties)}


def commit_times(times: Sequence[datetime], lookback: int = LOOKBACK) -> list[datetime]:
    """The times of a log, newest first, such that none precedes its parent's (hazard P13).

    Each Nessie server goes by its own clock. A commit is not before any of the few beneath it.
    """
    return [max(islice(times, at, at + lookback + 1)) for at in range(len(times))]


def namespaces_emptied(request: CommitRequest) -> tuple[TableKey, ...]:
    """The namespaces that the request deletes, and that must have nothing in them."""
    return tuple(
        key
        for key, change in sorted(request.changes.items())
        if isinstance(change, Delete) and isinstance(request.expected[key], NamespaceContent)
    )


def is_abandoned(ref: str, before: datetime) -> bool:
    """Whether a ref is a temporary of a commit that began before this moment, and that nobody ended."""
    if not ref.startswith(TEMPORARIES):
        return False
    try:
        return time_of(parse_ulid(ref.removeprefix(TEMPORARIES))) < before
    except (UsageError, ValueError, OverflowError):
        return False  # not of our making, or of no time that there is: missing knowledge deletes nothing
