"""A filter over rows as Arrow, and over whole row groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import (
    BoundBooleanExpressionVisitor,
    _InclusiveMetricsEvaluationVisitor,
    bind,
    visit,
)
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from headwater.tables.filters import settle_filter
from headwater.tables.model import TableFile


def bind_filter(row_filter: BooleanExpression, schema: Schema) -> BooleanExpression:
    """The filter by field ids, without negations; refused when it does not fit the schema."""
    return bind(schema, settle_filter(row_filter, schema), case_sensitive=True)


@dataclass(frozen=True)
class GroupFilter:
    """A filter for whole row groups, and the types of the columns that it looks at."""

    bound: BooleanExpression
    kinds: Mapping[int, PrimitiveType]

    def may_match(self, group: TableFile) -> bool:
        """Whether the group, measured as if it were a file, may hold a row that matches."""
        return bool(visit(self.bound, _InclusiveMetricsEvaluationVisitor(group)))


def matching_rows(bound: BooleanExpression, columns: Mapping[int, pa.Array], rows: int) -> np.ndarray[Any, Any]:
    """Which of so many rows match, from the columns that the filter looks at, by field id."""
    matches = visit(bound, _Filter(columns, rows))
    known: np.ndarray[Any, Any] = matches.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
    return known


class _Filter(BoundBooleanExpressionVisitor[pa.Array]):
    """Which rows match: as in SQL, a comparison with null is unknown, and what is unknown does not match."""

    def __init__(self, columns: Mapping[int, pa.Array], rows: int) -> None:
        self._columns, self._rows = columns, rows

    def _of(self, term: Any) -> pa.Array:
        return self._columns[term.ref().field.field_id]

    def _compare(self, name: str, term: Any, literal: Literal[Any]) -> pa.Array:
        column = self._of(term)
        return pc.call_function(name, [column, pa.scalar(literal.value, column.type)])

    def visit_in(self, term: Any, literals: set[Any]) -> pa.Array:
        column = self._of(term)
        # Arrow looks for bits here, and there are two zeros; Python's set keeps only one of them.
        zeros = [-0.0, 0.0] if pa.types.is_floating(column.type) and 0.0 in literals else []
        found = pc.is_in(column, value_set=pa.array([*literals, *zeros], column.type))
        return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.bool_()))

    def visit_not_in(self, term: Any, literals: set[Any]) -> pa.Array:
        return pc.invert(self.visit_in(term, literals))

    def visit_is_nan(self, term: Any) -> pa.Array:
        return pc.is_nan(self._of(term))

    def visit_not_nan(self, term: Any) -> pa.Array:
        return pc.invert(pc.is_nan(self._of(term)))

    def visit_is_null(self, term: Any) -> pa.Array:
        return self._of(term).is_null()

    def visit_not_null(self, term: Any) -> pa.Array:
        return self._of(term).is_valid()

    def visit_equal(self, term: Any, literal: Any) -> pa.Array:
        return self._compare("equal", term, literal)

    def visit_not_equal(self, term: Any, literal: Any) -> pa.Array:
        return self._compare("not_equal", term, literal)

    def visit_greater_than_or_equal(self, term: Any, literal: Any) -> pa.Array:
        return self._compare("greater_equal", term, literal)

    def visit_greater_than(self, term: Any, literal: Any) -> pa.Array:
        return self._compare("greater", term, literal)

    def visit_less_than(self, term: Any, literal: Any) -> pa.Array:
        return self._compare("less", term, literal)

    def visit_less_than_or_equal(self, term: Any, literal: Any) -> pa.Array:
        return self._compare("less_equal", term, literal)

    def visit_starts_with(self, term: Any, literal: Any) -> pa.Array:
        return pc.starts_with(self._of(term), literal.value)

    def visit_not_starts_with(self, term: Any, literal: Any) -> pa.Array:
        return pc.invert(self.visit_starts_with(term, literal))

    def visit_true(self) -> pa.Array:
        return pa.repeat(pa.scalar(True), self._rows)  # noqa: FBT003

    def visit_false(self) -> pa.Array:
        return pa.repeat(pa.scalar(False), self._rows)  # noqa: FBT003

    def visit_not(self, child_result: pa.Array) -> pa.Array:
        return pc.invert(child_result)

    def visit_and(self, left_result: pa.Array, right_result: pa.Array) -> pa.Array:
        return pc.and_kleene(left_result, right_result)

    def visit_or(self, left_result: pa.Array, right_result: pa.Array) -> pa.Array:
        return pc.or_kleene(left_result, right_result)
