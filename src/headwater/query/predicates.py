"""Which rows of each table a query can depend on, from the plan that DuckDB's optimizer made for it.

The plan was made over empty stand-ins, with no statistics, so it answers the query for any content of the tables.
It drops rows that fail the filter right above a scan, so the query's answer does not depend on them: files that hold
no other rows need not be read. A table that is scanned twice needs the rows of either scan, one that is never
scanned needs none.

What is not understood keeps everything. Each rule here gives a condition that holds for *at least* the rows for
which DuckDB's holds; for that reason nothing is said about NOT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.expressions import And, BooleanExpression, Or
from pyiceberg.types import NestedField

from headwater.query.conditions import (
    EVERYTHING,
    NOTHING,
    Json,
    all_of,
    any_of,
    compare,
    has_prefix,
    is_null,
    one_of,
)

Columns = Mapping[str, NestedField]
FieldOf = Callable[[int], NestedField | None]

_FLIPPED = {
    "COMPARE_EQUAL": "COMPARE_EQUAL",
    "COMPARE_NOT_DISTINCT_FROM": "COMPARE_NOT_DISTINCT_FROM",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
}
_PREFIX_FUNCTIONS = ("prefix", "starts_with", "^@")
MOST_COMPARISONS = 2000
MOST_LEVELS = 50


@dataclass(frozen=True)
class Needed:
    """What a query needs of one stand-in."""

    rows: BooleanExpression = NOTHING
    columns: frozenset[str] = frozenset()


def needed(plan: Any, stand_ins: Mapping[str, Columns]) -> dict[str, Needed]:
    """For each stand-in, by its name, the rows and columns that the plan depends on.

    A condition that would cost more to compare with every file than it can save is dropped.
    """
    found = {name: Needed() for name in stand_ins}
    for scan, conditions in _scans(plan):
        name = str(scan["function_data"]["table"])
        if name not in stand_ins:
            continue
        columns = stand_ins[name]
        rows = all_of([*_pushed(scan, columns), *(_expression(each, _output(scan, columns)) for each in conditions)])
        used = {scan["names"][each["index"]] for each in scan["column_indexes"] if each["index"] < len(scan["names"])}
        found[name] = Needed(Or(found[name].rows, rows), found[name].columns | used)
    return {name: replace(each, rows=each.rows if _is_small(each.rows) else EVERYTHING) for name, each in found.items()}


def _is_small(condition: BooleanExpression) -> bool:
    """Whether it has few levels, so that whoever follows it is not lost in it, and few comparisons."""
    waiting, comparisons = [(condition, 1)], 0
    while waiting:
        each, level = waiting.pop()
        if isinstance(each, And | Or):
            waiting += [(each.left, level + 1), (each.right, level + 1)]
        comparisons += 1
        if level > MOST_LEVELS or comparisons > MOST_COMPARISONS:
            return False
    return True


def _scans(plan: Any) -> Iterator[tuple[Json, list[Json]]]:
    """Each scan of a table, with the conditions of the filter right above it."""
    waiting: list[Any] = [plan]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            children = node.get("children")
            if node.get("type") == "LOGICAL_FILTER" and isinstance(children, list) and _is_scan(children[0]):
                yield children[0], node["expressions"]
                waiting.extend(value for key, value in node.items() if key != "children")
            elif _is_scan(node):
                yield node, []
            else:
                waiting.extend(node.values())


def _is_scan(node: Any) -> bool:
    return isinstance(node, dict) and node.get("type") == "LOGICAL_GET" and node.get("name") == "seq_scan"


def _output(scan: Json, columns: Columns) -> FieldOf:
    """The column behind a position in what the scan gives."""
    indexes = [each["index"] for each in scan["column_indexes"]]
    given = [indexes[each] for each in scan["projection_ids"]] if scan["projection_ids"] else indexes

    def field_of(position: int) -> NestedField | None:
        if position >= len(given) or given[position] >= len(scan["names"]):
            return None
        return columns.get(scan["names"][given[position]])

    return field_of


def _pushed(scan: Json, columns: Columns) -> Iterator[BooleanExpression]:
    for each in scan["table_filters"]["filters"]:
        if each["key"] < len(scan["names"]):
            field = columns.get(scan["names"][each["key"]])
            if field is not None:
                yield _filter(each["value"], field)


def _filter(said: Json, field: NestedField) -> BooleanExpression:
    """A condition that DuckDB has pushed into the scan of one column."""
    match said["filter_type"]:
        case "CONSTANT_COMPARISON":
            return compare(said["comparison_type"], field, said["constant"])
        case "IS_NULL":
            return is_null(field, negated=False)
        case "IS_NOT_NULL":
            return is_null(field, negated=True)
        case "IN_FILTER":
            return one_of(field, said["values"])
        case "CONJUNCTION_AND":
            return all_of(_filter(each, field) for each in said["child_filters"])
        case "CONJUNCTION_OR":
            return any_of(_filter(each, field) for each in said["child_filters"])
        case "OPTIONAL_FILTER" if said.get("child_filter"):
            return _filter(said["child_filter"], field)
        case "EXPRESSION_FILTER":
            return _expression(said["expr"], lambda position: field if position == 0 else None)
    return EVERYTHING


def _expression(said: Json, field_of: FieldOf) -> BooleanExpression:
    """A bound expression of DuckDB's, used as a condition."""
    match said["type"]:
        case "CONJUNCTION_AND":
            return all_of(_expression(each, field_of) for each in said["children"])
        case "CONJUNCTION_OR":
            return any_of(_expression(each, field_of) for each in said["children"])
        case "OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL":
            field = _column(said["children"][0], field_of)
            return EVERYTHING if field is None else is_null(field, negated=said["type"] == "OPERATOR_IS_NOT_NULL")
        case "COMPARE_IN":
            field, *constants = (_column(said["children"][0], field_of), *map(_constant, said["children"][1:]))
            if field is None or not constants:
                return EVERYTHING
            known = [each for each in constants if each is not None]
            return one_of(field, known) if len(known) == len(constants) else EVERYTHING
        case "BOUND_FUNCTION" if said.get("name") in _PREFIX_FUNCTIONS and len(said["children"]) == 2:
            return has_prefix(_column(said["children"][0], field_of), _constant(said["children"][1]))
        case kind if kind in _FLIPPED:
            return _comparison(kind, said["left"], said["right"], field_of)
    return EVERYTHING


def _comparison(kind: str, left: Json, right: Json, field_of: FieldOf) -> BooleanExpression:
    for column, constant, way in ((left, right, kind), (right, left, _FLIPPED[kind])):
        field, against = _column(column, field_of), _constant(constant)
        if field is not None and against is not None:
            return compare(way, field, against)
    return EVERYTHING


def _column(said: Json, field_of: FieldOf) -> NestedField | None:
    return field_of(said["index"]) if said["type"] == "BOUND_REF" else None


def _constant(said: Json) -> Json | None:
    return said["value"] if said["type"] == "VALUE_CONSTANT" else None
