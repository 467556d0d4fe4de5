"""A filter made to mean the same to everybody who looks at it: pruning, reading, and the proof that all rows match.

PyIceberg's binding is not good enough for that. A comparison with a number that no value of the column reaches becomes
`true`, also of null; an infinity counts as such a number; a number between two values of the column is rounded to one
of them. Here every literal becomes a value of its column first, and the comparison changes where it has to:

    i <  3_000_000_000  (int)         i IS NOT NULL
    i =  3_000_000_000  (int)         false
    f <  1e300          (float)       f <= the largest finite float
    d <  1.234          (2 digits)    d <= 1.23
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    NotEqualTo,
    NotIn,
    NotNull,
    NotStartsWith,
    Or,
    SetPredicate,
    StartsWith,
    UnboundTerm,
)
from pyiceberg.expressions.literals import (
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    FloatLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    TimestampLiteral,
)
from pyiceberg.expressions.visitors import bind, rewrite_not
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
)

from headwater.tables.model import TableUsageError

_LARGEST_FLOAT = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
_LARGEST_DOUBLE = struct.unpack("<d", b"\xff\xff\xff\xff\xff\xff\xef\x7f")[0]
_MICROSECONDS_OF_DAY = 86_400_000_000
_DAYS = (IntegerType.min, IntegerType.max)
# More digits than any literal that a person writes; no context of the caller's may round it.
_EXACT = Context(prec=2000)


def settle_filter(row_filter: BooleanExpression, schema: Schema, *, case_sensitive: bool = True) -> BooleanExpression:
    """The filter without negations, every literal in it a value of its column; refused when it does not fit."""
    try:
        settled = _settled(
            rewrite_not(row_filter), lambda term: term.bind(schema, case_sensitive).ref().field.field_type
        )
        bind(schema, settled, case_sensitive=case_sensitive)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise TableUsageError(
            f"the filter {row_filter} does not fit the table: {error}",
            hint=f"the table has {', '.join(schema.column_names)}; compare each with values of its own type",
        ) from error
    return settled


def _settled(expression: BooleanExpression, kind_of: Callable[[UnboundTerm], IcebergType]) -> BooleanExpression:
    match expression:
        case And():
            return And(_settled(expression.left, kind_of), _settled(expression.right, kind_of))
        case Or():
            return Or(_settled(expression.left, kind_of), _settled(expression.right, kind_of))
        case StartsWith() | NotStartsWith():
            if not isinstance(kind := kind_of(expression.term), StringType):
                raise TypeError(f"{kind} has no prefixes")
            return expression
        case LiteralPredicate():
            return _compared(
                _Comparison(type(expression), expression.term), expression.literal, kind_of(expression.term)
            )
        case SetPredicate():
            return _within(expression, kind_of(expression.term))
    return expression


def _within(predicate: SetPredicate, kind: IcebergType) -> BooleanExpression:
    """Literals that no value can equal are left out."""
    term = predicate.term
    found = (_compared(_Comparison(EqualTo, term), each, kind) for each in predicate.literals)
    equal = [each.literal for each in found if isinstance(each, EqualTo)]
    if isinstance(predicate, In):
        return In(term, equal) if equal else AlwaysFalse()  # type: ignore[call-arg]
    return NotIn(term, equal) if equal else NotNull(term=term)  # type: ignore[call-arg]


@dataclass(frozen=True)
class _Comparison:
    """A comparison of a column, with something that is still to be said."""

    operator: type[LiteralPredicate]
    term: UnboundTerm

    def with_value(self, literal: Literal[Any]) -> BooleanExpression:
        """With a value that the column can have."""
        return self.operator(term=self.term, value=literal)

    def with_gap(self, below: Literal[Any]) -> BooleanExpression:
        """With something between this value, which the column can have, and the next one."""
        if issubclass(self.operator, LessThan | LessThanOrEqual):
            return LessThanOrEqual(term=self.term, value=below)
        if issubclass(self.operator, GreaterThan | GreaterThanOrEqual):
            return GreaterThan(term=self.term, value=below)
        return self._with_none()

    def with_end(self, *, above: bool) -> BooleanExpression:
        """With something above, or below, all values that the column can have. A null is compared with nothing."""
        true = (LessThan, LessThanOrEqual) if above else (GreaterThan, GreaterThanOrEqual)
        return NotNull(term=self.term) if issubclass(self.operator, true) else self._with_none()

    def _with_none(self) -> BooleanExpression:
        return NotNull(term=self.term) if issubclass(self.operator, NotEqualTo) else AlwaysFalse()


def _compared(comparison: _Comparison, literal: Literal[Any], kind: IcebergType) -> BooleanExpression:
    match kind:
        case FloatType() | DoubleType():
            return _with_float(comparison, literal, kind)
        case IntegerType() | LongType() if isinstance(literal, LongLiteral | DecimalLiteral | StringLiteral):
            below, exact = _floor(_number(literal), 0)
            return _on_grid(comparison, LongLiteral(int(below)), (kind.min, kind.max), exact=exact)
        case DecimalType() if isinstance(literal.value, int | float | Decimal | str):
            below, exact = _floor(_number(literal), kind.scale)
            largest = Decimal(10**kind.precision - 1).scaleb(-kind.scale, _EXACT)
            return _on_grid(comparison, DecimalLiteral(below), (-largest, largest), exact=exact)
        case DateType() if isinstance(literal, TimestampLiteral):
            days, rest = divmod(literal.value, _MICROSECONDS_OF_DAY)
            return _on_grid(comparison, DateLiteral(days), _DAYS, exact=rest == 0)
        case DateType() if isinstance(literal, LongLiteral):
            return _on_grid(comparison, DateLiteral(literal.value), _DAYS, exact=True)
        case PrimitiveType():
            return comparison.with_value(literal.to(kind))
    raise TypeError(f"{kind} cannot be compared")


def _number(literal: Literal[Any]) -> Decimal:
    """The number that was written; a float means the shortest one that is read back as it."""
    if isinstance(literal.value, bool):
        raise TypeError(f"{literal!r} is no number")
    found = Decimal(repr(literal.value) if isinstance(literal.value, float) else literal.value)
    if not found.is_finite():
        raise ValueError(f"{literal.value} is no number that the column can have")
    return found


def _floor(number: Decimal, scale: int) -> tuple[Decimal, bool]:
    """The largest number with so many digits that is not above it, and whether it is the number itself."""
    below = number.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_FLOOR, context=_EXACT)
    return below, below == number


def _on_grid(comparison: _Comparison, below: Literal[Any], ends: tuple[Any, Any], *, exact: bool) -> BooleanExpression:
    """Compare with `below`, or with something above it and below the next value that the column could have."""
    smallest, largest = ends
    if below.value > largest or (below.value == largest and not exact):
        return comparison.with_end(above=True)
    if below.value < smallest:
        return comparison.with_end(above=False)
    return comparison.with_value(below) if exact else comparison.with_gap(below)


def _with_float(comparison: _Comparison, literal: Literal[Any], kind: FloatType | DoubleType) -> BooleanExpression:
    """Numbers are rounded to the column's precision; what is too large lies between the largest one and infinity."""
    value = literal.value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise TypeError(f"{literal!r} is no number")
    try:
        number = float(value)
    except OverflowError:  # of an integer
        number = math.inf if int(value) > 0 else -math.inf
    if math.isnan(number):
        raise ValueError("nothing equals NaN; ask whether it is NaN")
    single = isinstance(kind, FloatType)
    make, largest = (FloatLiteral, _LARGEST_FLOAT) if single else (DoubleLiteral, _LARGEST_DOUBLE)
    is_infinite = isinstance(value, float | str) or (isinstance(value, Decimal) and value.is_infinite())
    if abs(number) <= largest or (math.isinf(number) and is_infinite):
        return comparison.with_value(make(struct.unpack("<f", struct.pack("<f", number))[0] if single else number))
    return comparison.with_gap(make(largest if number > 0 else -math.inf))
