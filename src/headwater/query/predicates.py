"""Which rows of each table a query can depend on, from the plan that DuckDB's optimizer made for it.

The plan was made over empty stand-ins, with no statistics, so it answers the query for any content of the tables.
It drops rows that fail the filter right above a scan, so the query's answer does not depend on them: files that hold
no other rows need not be read. A table that is scanned twice needs the rows of either scan, one that is never
scanned needs none.

What is not understood keeps everything. Each rule here gives a condition that holds for *at least* the rows for
which DuckDB's holds; for that reason nothing is said about NOT.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import reduce
from typing import Any, cast

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.literals import (
    BooleanLiteral,
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    TimestampLiteral,
)
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

EVERYTHING = AlwaysTrue()
NOTHING = AlwaysFalse()

Json = Mapping[str, Any]
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
_NAN_ALONE = ("COMPARE_EQUAL", "COMPARE_NOT_DISTINCT_FROM", "COMPARE_GREATERTHANOREQUALTO")
_GREATER = "COMPARE_GREATER"
_PREFIX_FUNCTIONS = ("prefix", "starts_with", "^@")
_EXACT = Context(prec=40)
# Years 1 to 9999: Iceberg's transforms in Python know no others.
_FIRST_DAY, _LAST_DAY = -719162, 2932896
_MICROSECONDS_OF_DAY = 86_400_000_000


@dataclass(frozen=True)
class Needed:
    """What a query needs of one stand-in."""

    rows: BooleanExpression = NOTHING
    columns: frozenset[str] = frozenset()


def needed(plan: Any, stand_ins: Mapping[str, Columns]) -> dict[str, Needed]:
    """For each stand-in, by its name, the rows and columns that the plan depends on."""
    found = {name: Needed() for name in stand_ins}
    for scan, conditions in _scans(plan):
        name = str(scan["function_data"]["table"])
        if name not in stand_ins:
            continue
        columns = stand_ins[name]
        rows = _all([*_pushed(scan, columns), *(_expression(each, _output(scan, columns)) for each in conditions)])
        used = {scan["names"][each["index"]] for each in scan["column_indexes"] if each["index"] < len(scan["names"])}
        found[name] = Needed(Or(found[name].rows, rows), found[name].columns | used)
    return found


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
            return _compare(said["comparison_type"], field, said["constant"])
        case "IS_NULL":
            return _null(field, negated=False)
        case "IS_NOT_NULL":
            return _null(field, negated=True)
        case "IN_FILTER":
            return _any(_compare("COMPARE_EQUAL", field, each) for each in said["values"])
        case "CONJUNCTION_AND":
            return _all(_filter(each, field) for each in said["child_filters"])
        case "CONJUNCTION_OR":
            return _any(_filter(each, field) for each in said["child_filters"])
        case "OPTIONAL_FILTER" if said.get("child_filter"):
            return _filter(said["child_filter"], field)
        case "EXPRESSION_FILTER":
            return _expression(said["expr"], lambda position: field if position == 0 else None)
    return EVERYTHING


def _expression(said: Json, field_of: FieldOf) -> BooleanExpression:
    """A bound expression of DuckDB's, used as a condition."""
    match said["type"]:
        case "CONJUNCTION_AND":
            return _all(_expression(each, field_of) for each in said["children"])
        case "CONJUNCTION_OR":
            return _any(_expression(each, field_of) for each in said["children"])
        case "OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL":
            field = _column(said["children"][0], field_of)
            return EVERYTHING if field is None else _null(field, negated=said["type"] == "OPERATOR_IS_NOT_NULL")
        case "COMPARE_IN":
            field, *constants = (_column(said["children"][0], field_of), *map(_constant, said["children"][1:]))
            if field is None or not constants:
                return EVERYTHING
            return _any(EVERYTHING if each is None else _compare("COMPARE_EQUAL", field, each) for each in constants)
        case "BOUND_FUNCTION" if said.get("name") in _PREFIX_FUNCTIONS and len(said["children"]) == 2:
            return _prefix(_column(said["children"][0], field_of), _constant(said["children"][1]))
        case kind if kind in _FLIPPED:
            return _comparison(kind, said["left"], said["right"], field_of)
    return EVERYTHING


def _comparison(kind: str, left: Json, right: Json, field_of: FieldOf) -> BooleanExpression:
    for column, constant, way in ((left, right, kind), (right, left, _FLIPPED[kind])):
        field, against = _column(column, field_of), _constant(constant)
        if field is not None and against is not None:
            return _compare(way, field, against)
    return EVERYTHING


def _column(said: Json, field_of: FieldOf) -> NestedField | None:
    return field_of(said["index"]) if said["type"] == "BOUND_REF" else None


def _constant(said: Json) -> Json | None:
    return said["value"] if said["type"] == "VALUE_CONSTANT" else None


def _compare(kind: str, field: NestedField, constant: Json) -> BooleanExpression:
    if constant.get("is_null"):
        # To compare with NULL is true of no row, except that NULL is not distinct from NULL.
        return _null(field, negated=False) if kind == "COMPARE_NOT_DISTINCT_FROM" else NOTHING
    is_float = isinstance(field.field_type, FloatType | DoubleType)
    if is_float and isinstance(constant["value"], float) and math.isnan(constant["value"]):
        # To DuckDB NaN equals itself and is greater than all else.
        return IsNaN(term=Reference(field.name)) if kind in _NAN_ALONE else EVERYTHING
    literal = _literal(field, constant)
    if literal is None:
        return EVERYTHING
    found = _plain(kind, field.name, literal)
    # For the same reason NaN is among the greater ones, of which Iceberg's bounds do not speak.
    return Or(found, IsNaN(term=Reference(field.name))) if is_float and kind.startswith(_GREATER) else found


def _plain(kind: str, column: str, literal: Literal[Any]) -> BooleanExpression:
    match kind:
        case "COMPARE_EQUAL" | "COMPARE_NOT_DISTINCT_FROM":
            return EqualTo(term=Reference(column), value=literal)
        case "COMPARE_LESSTHAN":
            return LessThan(term=Reference(column), value=literal)
        case "COMPARE_LESSTHANOREQUALTO":
            return LessThanOrEqual(term=Reference(column), value=literal)
        case "COMPARE_GREATERTHAN":
            return GreaterThan(term=Reference(column), value=literal)
        case "COMPARE_GREATERTHANOREQUALTO":
            return GreaterThanOrEqual(term=Reference(column), value=literal)
    return EVERYTHING


def _null(field: NestedField, *, negated: bool) -> BooleanExpression:
    if not isinstance(field.field_type, PrimitiveType):
        return EVERYTHING
    return NotNull(term=Reference(field.name)) if negated else IsNull(term=Reference(field.name))


def _prefix(field: NestedField | None, constant: Json | None) -> BooleanExpression:
    if field is None or constant is None or not isinstance(field.field_type, StringType) or constant.get("is_null"):
        return EVERYTHING
    literal = _literal(field, constant)
    if literal is None or not literal.value:
        return EVERYTHING
    return StartsWith(term=Reference(field.name), value=literal)


def _literal(field: NestedField, constant: Json) -> Literal[Any] | None:
    """The constant as a value of the column's own type; None where the two are not of one type."""
    kind, given = field.field_type, constant["type"]
    value: Any = constant.get("value")
    match kind, given["id"]:
        case (BooleanType(), "BOOLEAN"):
            return BooleanLiteral(bool(value))
        case (IntegerType(), "INTEGER") | (LongType(), "BIGINT"):
            return LongLiteral(int(value))
        case (FloatType(), "FLOAT") | (DoubleType(), "DOUBLE"):
            return DoubleLiteral(float(value))
        case (StringType(), "VARCHAR") if isinstance(value, str):
            return StringLiteral(value)
        case (DateType(), "DATE") if _FIRST_DAY <= value <= _LAST_DAY:
            return DateLiteral(value)
        case (TimestampType(), "TIMESTAMP") | (TimestamptzType(), "TIMESTAMP WITH TIME ZONE"):
            if _FIRST_DAY <= value // _MICROSECONDS_OF_DAY <= _LAST_DAY:
                return TimestampLiteral(value)
        case (DecimalType(), "DECIMAL"):
            said = given["type_info"]
            if (said["width"], said["scale"]) == (kind.precision, kind.scale):
                return DecimalLiteral(_scaled(value, kind.scale))
    return None


def _scaled(value: Any, scale: int) -> Decimal:
    """A number of up to 38 digits; of the widest ones DuckDB gives both halves. No context may round it."""
    unscaled = (value["upper"] << 64) + value["lower"] if isinstance(value, dict) else value
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def _all(conditions: Iterable[BooleanExpression]) -> BooleanExpression:
    return reduce(And, conditions, cast(BooleanExpression, EVERYTHING))


def _any(conditions: Iterable[BooleanExpression]) -> BooleanExpression:
    return reduce(Or, conditions, cast(BooleanExpression, NOTHING))
