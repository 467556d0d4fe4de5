"""The decisions of the Iceberg protocol, without any I/O."""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, assert_never

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCreate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from headwater.catalog.model import Content, NamespaceContent, TableContent, TableKey, ViewContent
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.kernel.ids import Ulid
from headwater.publish.heads import HOME
from headwater.query.references import folded
from headwater.server.iceberg.errors import AlreadyThereError, BodyError, RequirementFailedError
from headwater.tables.head import INCARNATION, OPERATION, PREVIOUS, WRITER

# What stands between the parts of a namespace in an address.
SEPARATOR = "\x1f"
# No name of a branch has this character, and an address needs no escape for it.
_SLASH = "~"
LARGEST_PAGE = 10_000

_OWN = frozenset({INCARNATION, OPERATION, PREVIOUS, WRITER, HOME})
# What of the settings of a store is not for everybody; better one name too many.
_SECRET = re.compile("key|secret|token|password|passwd|credential|authorization|connection-string", re.IGNORECASE)
_PLACE = re.compile(r"-([0-7][0-9A-HJKMNP-TV-Z]{25})")

Name: TypeAlias = tuple[str, ...]


def prefix_of(branch: str) -> str:
    """The branch as a part of an address."""
    return branch.replace("/", _SLASH)


def branch_of(prefix: str) -> str:
    """The branch that a prefix means."""
    return prefix.replace(_SLASH, "/") or DEFAULT_BRANCH


def namespace_of(text: str) -> tuple[str, ...]:
    """The namespace that a part of an address means."""
    return tuple(text.split(SEPARATOR))


def config_for(config: Mapping[str, str], *, secrets: bool) -> dict[str, str]:
    """What a client hears of the store; without `secrets`, nothing that opens it."""
    return {name: value for name, value in config.items() if secrets or not _SECRET.search(name)}


def what(content: Content) -> str:
    """What a name stands for, in a word."""
    match content:
        case TableContent():
            return "table"
        case ViewContent():
            return "view"
        case NamespaceContent():
            return "namespace"


def page(names: Sequence[Name], token: str | None, size: int | None) -> tuple[Sequence[Name], str | None]:
    """One page of names that are in order, and the token of the next; without a size or a token, all of them.

    A token tells the last name of its page, so whatever comes and goes meanwhile, no other name is passed over.
    """
    if size is None and not token:
        return names, None
    if size is not None and size < 1:
        raise BodyError(f"pageSize is {size}", hint="a whole number above zero")
    start = bisect_right(names, _last(token)) if token else 0
    end = start + min(size or LARGEST_PAGE, LARGEST_PAGE)
    return names[start:end], _token(names[end - 1]) if end < len(names) else None


def _token(last: Name) -> str:
    return base64.urlsafe_b64encode(json.dumps([1, *last]).encode()).decode().rstrip("=")


def _last(token: str) -> Name:
    try:
        version, *last = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        if version == 1 and all(isinstance(each, str) for each in last):
            return tuple(last)
    except (ValueError, TypeError, RecursionError):
        pass
    raise BodyError("the pageToken is none of ours", hint="send the one that came with the page before")


def refuse_taken(key: TableKey, held: Content | None, siblings: Iterable[TableKey]) -> None:
    """Refuse a name that stands for something, or differs from another in capitals alone: SQL cannot tell them."""
    if held is not None:
        raise AlreadyThereError(key, what(held))
    alike = folded(str(key))
    for each in siblings:
        if each != key and folded(str(each)) == alike:
            raise AlreadyThereError(each, "table, view or namespace")


def is_creation(requirements: Iterable[TableRequirement]) -> bool:
    """Whether the change is the second half of a staged create."""
    return any(isinstance(each, AssertCreate) for each in requirements)


def is_of(requirements: Iterable[TableRequirement], metadata: TableMetadata) -> bool:
    """Whether this is the table that the change is about, and not another of its name."""
    return all(each.uuid == metadata.table_uuid for each in requirements if isinstance(each, AssertTableUUID))


def require(key: TableKey, requirements: Iterable[TableRequirement], metadata: TableMetadata) -> None:
    """Raise unless everything is so that the client's change rests on."""
    for each in requirements:
        named, wanted, found = _compared(each, metadata)
        if wanted != found:
            raise RequirementFailedError(key, f"the {named} is {found}, and not {wanted}")


def _compared(requirement: TableRequirement, metadata: TableMetadata) -> tuple[str, object, object]:
    """What a requirement is about, what it wants, and what is so."""
    match requirement:
        case AssertCreate():
            return "table", "absent", "there"
        case AssertTableUUID():
            return "uuid", requirement.uuid, metadata.table_uuid
        case AssertRefSnapshotId():
            ref = metadata.refs.get(requirement.ref)
            return f"snapshot of {requirement.ref}", requirement.snapshot_id, ref.snapshot_id if ref else None
        case AssertLastAssignedFieldId():
            return "last assigned field id", requirement.last_assigned_field_id, metadata.last_column_id
        case AssertCurrentSchemaId():
            return "current schema id", requirement.current_schema_id, metadata.current_schema_id
        case AssertLastAssignedPartitionId():
            return "last assigned partition id", requirement.last_assigned_partition_id, metadata.last_partition_id
        case AssertDefaultSpecId():
            return "default spec id", requirement.default_spec_id, metadata.default_spec_id
        case AssertDefaultSortOrderId():
            return "default sort order id", requirement.default_sort_order_id, metadata.default_sort_order_id
        case _:
            assert_never(requirement)


def incarnation_in(location: str, lake: str, folder: str) -> Ulid:
    """The incarnation of a table that was staged, which its place tells; refused for any place that is not ours."""
    inside = f"{lake}/{folder}/"
    found = _PLACE.search(location, max(0, len(location) - 27))
    parts = location.removeprefix(inside).split("/")
    is_ours = location.startswith(inside) and all(each not in ("", ".", "..") for each in parts)
    if found is None or found.end() != len(location) or not is_ours:
        raise BodyError(
            f"a table cannot be made at {location!r}", hint="stage its creation first, and take the place that is given"
        )
    return Ulid(found[1])


def without_own(updates: Iterable[TableUpdate]) -> tuple[TableUpdate, ...]:
    """The updates of a staged create without the lake's own properties, which the client only sends back."""
    return tuple(
        SetPropertiesUpdate(updates={key: value for key, value in each.updates.items() if key not in _OWN})
        if isinstance(each, SetPropertiesUpdate)
        else each
        for each in updates
    )


def told(key: TableKey, updates: Iterable[TableUpdate], *, is_new: bool) -> str:
    """What a change does, in a few words for the log."""
    actions = []
    for each in updates:
        if isinstance(each, AddSnapshotUpdate):
            operation = each.snapshot.summary.operation.value if each.snapshot.summary else "snapshot"
            actions.append(operation)
        elif each.action != "set-snapshot-ref":
            actions.append(each.action)
    verb = "create" if is_new else "change"
    shown = ", ".join(dict.fromkeys(actions)) or "refs"
    return f"{verb} {key}" if is_new else f"{verb} {key}: {shown}"
