"""The documents of a table that both sides changed, combined: columns, partitioning, order, properties. Pure.

Columns, partitioning and order belong together, as ids of one are used by the other: they are taken as a whole from the
side that changed them. Properties are combined one by one, and so are tags and branches of snapshots: those of the
target are kept, those of the source are taken as far as their snapshots are. Whether rows must be combined is said, not
done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef

from headwater.catalog.model import TableKey
from headwater.kernel.ids import Ulid
from headwater.publish.branches.decide import three_way
from headwater.publish.branches.model import Combined, Conflict
from headwater.publish.constraints.codec import CONSTRAINTS, REFERENCED_BY, constraint_properties, constraints_of
from headwater.publish.schema.demands import mentioned
from headwater.tables.head import OPERATION, PREVIOUS, WRITER
from headwater.tables.metadata_log import with_log_entry
from headwater.tables.model import TableVersion
from headwater.tables.rules import checked, later

T = TypeVar("T")

# What a document says of itself, not of the table.
_OWN = frozenset({WRITER, PREVIOUS, OPERATION})
_SHAPE = (
    "schemas",
    "current_schema_id",
    "last_column_id",
    "partition_specs",
    "default_spec_id",
    "last_partition_id",
    "sort_orders",
    "default_sort_order_id",
)


def same_table(one: TableMetadata, other: TableMetadata) -> bool:
    """Whether two documents say the same of the table; one may be the other, restored by a rollback (P9)."""
    return _said(one) == _said(other)


def _said(metadata: TableMetadata) -> dict[str, Any]:
    own = {"properties", "metadata_log", "last_updated_ms"}
    return {**metadata.model_dump(exclude=own), "properties": _properties(metadata)}


def _properties(metadata: TableMetadata) -> dict[str, str]:
    return {name: value for name, value in metadata.properties.items() if name not in _OWN}


def shape_of(metadata: TableMetadata) -> dict[str, Any]:
    """The columns, partitioning and order of the table, with all ids that were ever given."""
    return {name: getattr(metadata, name) for name in _SHAPE}


def combine(
    key: TableKey, bases: Sequence[TableMetadata], source: TableMetadata, target: TableMetadata
) -> Combined | Conflict:
    """What becomes of a table that both sides changed; every base must lead to the same."""
    if len({each.format_version for each in (*bases, source, target)}) > 1:
        return Conflict(key, "has another format version on one side, and was changed on the other")
    shape: dict[str, Any] | None = _agreed(
        [three_way(shape_of(base), shape_of(source), shape_of(target)) for base in bases]
    )
    if shape is None:
        return Conflict(key, "has columns, partitioning or an order that were changed on both sides")
    properties: dict[str, str] = {}
    for place, base in enumerate(bases):
        combined = _combined_properties(key, base, source, target)
        if isinstance(combined, Conflict):
            return combined
        if place and combined != properties:
            return Conflict(key, "has properties that were changed on both sides")
        properties = combined
    # A snapshot may be absent, so it is compared within a tuple.
    ours, theirs = (target.current_snapshot_id,), (source.current_snapshot_id,)
    snapshot = _agreed([three_way((base.current_snapshot_id,), theirs, ours) for base in bases])
    of_source = snapshot == theirs and theirs != ours
    chosen = source if of_source else target
    own = {name: value for name, value in chosen.properties.items() if name in _OWN}
    refs = _combined_refs(key, bases, source, target, chosen)
    if isinstance(refs, Conflict):
        return refs
    metadata = chosen.model_copy(update={**shape, "refs": refs, "properties": {**own, **properties}})
    if snapshot is None and not primary_key(metadata):
        return Conflict(key, "has rows that were changed on both sides, and no primary key to combine them by")
    if (column := _astray(metadata, source, target)) is not None:
        return Conflict(key, f"has constraints of one side that speak of {column}, which the other dropped or renamed")
    return Combined(checked(metadata), of_source, needs_rows=snapshot is None)


def _agreed(found: Sequence[T | None]) -> T | None:
    """What all of them say, if they say the same."""
    return found[0] if all(each == found[0] for each in found) else None


def primary_key(metadata: TableMetadata) -> tuple[str, ...]:
    """The columns that tell rows apart; none when one of them lies within another column."""
    schema = metadata.schema()
    own = {each.field_id: each.name for each in schema.fields}
    if not all(each in own for each in schema.identifier_field_ids):
        return ()
    return tuple(own[each] for each in sorted(schema.identifier_field_ids))


def _combined_properties(
    key: TableKey, base: TableMetadata, source: TableMetadata, target: TableMetadata
) -> dict[str, str] | Conflict:
    sides = [_properties(each) for each in (base, source, target)]
    combined = {}
    for name in sorted({name for side in sides for name in side} - {REFERENCED_BY}):
        held = three_way(*((side.get(name),) for side in sides))
        if held is None:
            return Conflict(key, f"has a property {name} that was changed on both sides")
        if held[0] is not None:
            combined[name] = held[0]
    referrers = _referrers(*(constraints_of(each).referenced_by for each in (base, source, target)))
    return {**combined, **referrers}


def _astray(made: TableMetadata, *sides: TableMetadata) -> str | None:
    """A column that constraints speak of, and that is another one here than where they come from, or none."""
    text, columns = made.properties.get(CONSTRAINTS), _ids(made)
    found = []
    for side in sides:
        if side.properties.get(CONSTRAINTS) == text:
            then = _ids(side)
            spoken_of = {name for each in constraints_of(side).declared for name in mentioned(each, side.schema())}
            found.append(next((name for name in sorted(spoken_of) if columns.get(name) != then.get(name)), None))
    return None if None in found else found[0]


def _ids(metadata: TableMetadata) -> dict[str, int]:
    return {each.name: each.field_id for each in metadata.schema().fields}


def _combined_refs(
    key: TableKey, bases: Sequence[TableMetadata], source: TableMetadata, target: TableMetadata, chosen: TableMetadata
) -> dict[str, SnapshotRef] | Conflict:
    """The snapshots that have names; the current one is that of the document that was chosen."""
    combined = {name: each for name, each in chosen.refs.items() if name == MAIN_BRANCH}
    there = {each.snapshot_id for each in chosen.snapshots}
    names = {name for side in (*bases, source, target) for name in side.refs} - {MAIN_BRANCH}
    for name in sorted(names):
        ours, theirs = (target.refs.get(name),), (source.refs.get(name),)
        held = _agreed([three_way((base.refs.get(name),), theirs, ours) for base in bases])
        if held is None:
            return Conflict(key, f"has a snapshot called {name} that was changed on both sides")
        if held[0] is not None and held[0].snapshot_id in there:
            combined[name] = held[0]
        elif held == ours != (None,):
            return Conflict(key, f"has a snapshot called {name} on the target, which the source has no longer")
    return combined


def _referrers(base: Sequence[TableKey], source: Sequence[TableKey], target: Sequence[TableKey]) -> Mapping[str, str]:
    """Who refers to the table: what either side added, without what either took away."""
    left = (set(source) | set(target)) - (set(base) - set(source)) - (set(base) - set(target))
    text = constraint_properties((), sorted(left))[REFERENCED_BY]
    return {} if text is None else {REFERENCED_BY: text}


def following(metadata: TableMetadata, target: TableVersion | None, operation: Ulid, now: datetime) -> TableMetadata:
    """The document as the target's next version: its log tells of the target's own documents, of no other's (P7)."""
    log = [] if target is None else target.metadata.metadata_log
    made = metadata.model_copy(
        update={
            "metadata_log": log,
            "last_updated_ms": later(metadata, now),
            "properties": {**metadata.properties, OPERATION: operation},
        }
    )
    if target is None or target.location is None:
        return made
    return with_log_entry(made, target.location, target.metadata.last_updated_ms)
