"""The commits that publishing and recovering make."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from headwater.catalog.errors import NamespaceNotEmptyError
from headwater.catalog.model import Change, Commit, CommitRequest, Content, Delete, Put, TableContent, TableKey
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.kernel.ids import Ulid, time_of
from headwater.publish.model import RECOVERY_ACTOR, HeadState, Sidecar, Verdict, WriterKind, audit_operation

KIND = "headwater.recovery.kind"
FOR_ACTOR = "headwater.recovery.for-actor"
FOR_OPERATION = "headwater.recovery.operation"
OUTCOMES = "headwater.recovery.tables"


def forward_request(
    sidecar: Sidecar, head: str | None, actor: str, properties: Mapping[str, str] | None = None
) -> CommitRequest:
    """The commit that publishes what a sidecar planned, the same from its writer and from a recoverer."""
    changes: dict[TableKey, Change] = {each.key: Put(each.planned) for each in sidecar.heads}
    changes |= {each.renamed_from: Delete() for each in sidecar.heads if each.renamed_from is not None}
    changes |= {key: Delete() for key in sidecar.drops}
    changes |= {key: Put(each.after) if each.after else Delete() for key, each in sidecar.others.items()}
    expected: dict[TableKey, Content | None] = sidecar.rests_on
    expected |= {each.pinned_key: each.pinned for each in sidecar.heads}
    return CommitRequest(
        branch=sidecar.branch,
        head=head,
        changes=changes,
        expected=expected,
        actor=actor,
        message=sidecar.message,
        operation=sidecar.operation,
        properties={**sidecar.properties, **(properties or {})},
        merge_parent=sidecar.merge_parent,
        incarnation=sidecar.branch_incarnation,
        began_at=time_of(sidecar.operation),
    )


def commit_forward(commit: Callable[[CommitRequest], Commit], request: CommitRequest) -> Commit:
    """Commit what heads have moved for; a namespace that was to go, and has something in it by then, stays (P19).

    Whether a namespace is empty is no version that could be compared beforehand. Refused for that, again and again,
    the change could go neither forward nor back.
    """
    while True:
        try:
            return commit(request)
        except NamespaceNotEmptyError as error:
            changes = {key: change for key, change in request.changes.items() if key != error.namespace}
            request = replace(request, changes=changes)


def restored_request(
    sidecar: Sidecar,
    restored: Mapping[TableKey, tuple[TableContent, TableContent]],
    states: Mapping[TableKey, HeadState],
) -> CommitRequest:
    """The commit that pins what a rollback restored: by key, what was pinned and what takes its place.

    A repair plans nothing but that its head is restored, and says so in its own words.
    """
    is_repair = sidecar.kind is WriterKind.REPAIR
    return CommitRequest(
        branch=sidecar.branch,
        head=None,
        changes={key: Put(after) for key, (_, after) in restored.items()},
        expected={key: before for key, (before, _) in restored.items()},
        actor=RECOVERY_ACTOR,
        message=sidecar.message if is_repair else f"rolled back operation {sidecar.operation} of {sidecar.actor}",
        operation=sidecar.rollback_operation,
        properties={**audit(sidecar, Verdict.BACK, states), **(sidecar.properties if is_repair else {})},
        incarnation=sidecar.branch_incarnation,
    )


def audit_request(
    sidecar: Sidecar, branch: str, verdict: Verdict, states: Mapping[TableKey, HeadState]
) -> CommitRequest:
    """A commit that changes nothing and tells of a recovery."""
    return CommitRequest(
        branch=branch,
        head=None,
        changes={},
        expected={},
        actor=RECOVERY_ACTOR,
        message=f"operation {sidecar.operation} of {sidecar.actor} was {verdict}",
        operation=sidecar.audit_operation,
        properties=audit(sidecar, verdict, states),
    )


def settled_request(operation: Ulid) -> CommitRequest:
    """A commit that changes nothing and tells that an operation, of which nothing else is left, was not committed."""
    return CommitRequest(
        branch=DEFAULT_BRANCH,
        head=None,
        changes={},
        expected={},
        actor=RECOVERY_ACTOR,
        message=f"operation {operation} was not committed",
        operation=audit_operation(operation),
        properties={KIND: "settled", FOR_OPERATION: operation},
    )


def audit(sidecar: Sidecar, verdict: Verdict, states: Mapping[TableKey, HeadState]) -> dict[str, str]:
    """What the log keeps of a recovery: for whom, of what, and what became of each table (P13)."""
    pinned = {each.key: each.pinned for each in sidecar.heads}
    outcomes = {
        str(key): {
            "state": str(state),
            "to_version": content.metadata_location
            if (content := _to_version(sidecar, verdict, key, pinned))
            else None,
        }
        for key, state in sorted(states.items())
    }
    return {
        KIND: str(verdict),
        FOR_ACTOR: sidecar.actor,
        FOR_OPERATION: sidecar.operation,
        OUTCOMES: json.dumps(outcomes, sort_keys=True),
    }


def _to_version(
    sidecar: Sidecar, verdict: Verdict, key: TableKey, pinned: Mapping[TableKey, TableContent | None]
) -> TableContent | None:
    """The version that a reader sees afterwards; of a rollback it is the pinned one, whose content it is."""
    if verdict in (Verdict.FORWARD, Verdict.PUBLISHED):
        return next(each.planned for each in sidecar.heads if each.key == key)
    return pinned.get(key)
