"""Constraints as table properties, as docs/formats.md describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import TableKey
from headwater.kernel.errors import UsageError
from headwater.publish.constraints.model import (
    Cardinality,
    Check,
    Constraint,
    Constraints,
    ForeignKey,
    OnDelete,
)
from headwater.tables.model import TableCorruptError

CONSTRAINTS = "headwater.constraints"
REFERENCED_BY = "headwater.referenced-by"

_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, UsageError, RecursionError, OverflowError)


def constraints_of(metadata: TableMetadata) -> Constraints:
    """What the table's own metadata says; a property that cannot be read is an error, never an absence."""
    schema = metadata.schema()
    return Constraints(
        primary_key=tuple(schema.find_column_name(each) or "" for each in schema.identifier_field_ids),
        required=tuple(each.name for each in schema.fields if each.required),
        declared=_declared(metadata),
        referenced_by=_referenced_by(metadata),
    )


def constraint_properties(
    declared: Sequence[Constraint], referenced_by: Sequence[TableKey]
) -> Mapping[str, str | None]:
    """The two properties as they should be; None where there is nothing to say."""
    return {
        CONSTRAINTS: json.dumps([_encode(each) for each in declared], sort_keys=True) if declared else None,
        REFERENCED_BY: json.dumps(sorted(list(each.elements) for each in set(referenced_by)))
        if referenced_by
        else None,
    }


def _encode(constraint: Constraint) -> dict[str, Any]:
    match constraint:
        case Check():
            return {"kind": "check", "name": constraint.name, "expression": constraint.expression}
        case ForeignKey():
            return {
                "kind": "foreign-key",
                "name": constraint.name,
                "columns": list(constraint.columns),
                "parent": list(constraint.parent.elements),
                "parent_columns": list(constraint.parent_columns),
                "on_delete": str(constraint.on_delete),
            }
        case Cardinality():
            return {
                "kind": "cardinality",
                "name": constraint.name,
                "columns": list(constraint.columns),
                "at_least": constraint.at_least,
                "at_most": constraint.at_most,
            }
        case _:
            assert_never(constraint)


def _declared(metadata: TableMetadata) -> tuple[Constraint, ...]:
    text = metadata.properties.get(CONSTRAINTS)
    if text is None:
        return ()
    try:
        return tuple(_decode(each) for each in _list(json.loads(text)))
    except _DAMAGE as error:
        raise TableCorruptError(metadata.location, f"has a property {CONSTRAINTS} that is damaged: {error}") from error


def _decode(values: Mapping[str, Any]) -> Constraint:
    match values["kind"]:
        case "check":
            return Check(str(values["name"]), str(values["expression"]))
        case "foreign-key":
            return ForeignKey(
                str(values["name"]),
                _names(values["columns"]),
                _key(values["parent"]),
                _names(values["parent_columns"]),
                OnDelete(values["on_delete"]),
            )
        case "cardinality":
            at_most = values["at_most"]
            return Cardinality(
                str(values["name"]),
                _names(values["columns"]),
                int(values["at_least"]),
                None if at_most is None else int(at_most),
            )
    raise ValueError(f"a constraint of kind {values['kind']} is not known to this version")


def _referenced_by(metadata: TableMetadata) -> tuple[TableKey, ...]:
    text = metadata.properties.get(REFERENCED_BY)
    if text is None:
        return ()
    try:
        return tuple(_key(_list(each)) for each in _list(json.loads(text)))
    except _DAMAGE as error:
        raise TableCorruptError(
            metadata.location, f"has a property {REFERENCED_BY} that is damaged: {error}"
        ) from error


def _list(value: object) -> list[Any]:
    """An empty text or object is not a list with nothing in it: it is damage."""
    if not isinstance(value, list):
        raise TypeError(f"{json.dumps(value)} is not a list")
    return value


def _names(values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(each) for each in values)


def _key(elements: Sequence[Any]) -> TableKey:
    *namespace, name = (str(each) for each in elements)
    return TableKey(tuple(namespace), name)
