"""DuckDB's conditions on one column, as Iceberg's: each holds for at least the rows for which DuckDB's holds.

Constants are as DuckDB serializes them. Where a constant is not of the column's own type, nothing is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal
from typing import Any

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
MOST_VALUES = 200

Json = Mapping[str, Any]

_NAN_ALONE = ("COMPARE_EQUAL", "COMPARE_NOT_DISTINCT_FROM", "COMPARE_GREATERTHANOREQUALTO")
_GREATER = "COMPARE_GREATER"
_EXACT = Context(prec=40)
# Years 1 to 9999: Iceberg's transforms in Python know no others.
_FIRST_DAY, _LAST_DAY = -719162, 2932896
_MICROSECONDS_OF_DAY = 86_400_000_000


def compare(kind: str, field: NestedField, constant: Json) -> BooleanExpression:
    """A comparison of DuckDB's with a constant on its right."""
    if constant.get("is_null"):
        # To compare with NULL is true of no row, except that NULL is not distinct from NULL.
        return is_null(field, negated=False) if kind == "COMPARE_NOT_DISTINCT_FROM" else NOTHING
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


def one_of(field: NestedField, constants: Iterable[Json]) -> BooleanExpression:
    """One of these values."""
    return any_of(compare("COMPARE_EQUAL", field, each) for each in constants if not each.get("is_null"))


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


def is_null(field: NestedField, *, negated: bool) -> BooleanExpression:
    """Whether the column is null, or is not."""
    if not isinstance(field.field_type, PrimitiveType):
        return EVERYTHING
    return NotNull(term=Reference(field.name)) if negated else IsNull(term=Reference(field.name))


def has_prefix(field: NestedField | None, constant: Json | None) -> BooleanExpression:
    """Whether a text begins with a constant."""
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
        case (FloatType(), "FLOAT") | (DoubleType(), "DOUBLE") if math.isfinite(value):
            # As a FLOAT, PyIceberg takes infinity for a number above all, or below all, that a file can hold.
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


def all_of(conditions: Iterable[BooleanExpression]) -> BooleanExpression:
    """All of them; of none, everything."""
    return _balanced(And, conditions, EVERYTHING)


def any_of(conditions: Iterable[BooleanExpression]) -> BooleanExpression:
    """One of them; of none, nothing. Of many values, only the least and the greatest are compared with every file."""
    found = list(conditions)
    equals = [each for each in found if isinstance(each, EqualTo)]
    if len(equals) == len(found) > MOST_VALUES and len({each.term for each in equals}) == 1:
        literals = sorted((each.literal for each in equals), key=lambda each: each.value)
        least = GreaterThanOrEqual(term=equals[0].term, value=literals[0])
        return And(least, LessThanOrEqual(term=equals[0].term, value=literals[-1]))
    return _balanced(Or, found, NOTHING)


def _balanced(
    join: Callable[..., BooleanExpression], conditions: Iterable[BooleanExpression], none: BooleanExpression
) -> BooleanExpression:
    """All of the conditions, in as few levels as can be: each level costs those who follow it a few calls."""
    level = list(conditions)
    while len(level) > 1:
        pairs = [tuple(level[place : place + 2]) for place in range(0, len(level), 2)]
        level = [join(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0] if level else none
