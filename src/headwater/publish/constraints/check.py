"""Constraints, judged on the end state of a change: committed rows, and what is pending over them.

Only what a change can have broken is asked: values that it brought more rows of than it took away, or the other way
round. So a change that leaves a column alone asks nothing about it, and reads no other table for its sake (P8: what is
read must not change meanwhile). That rests on the committed rows satisfying their constraints already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Protocol, assert_never

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import TableKey
from headwater.kernel.errors import UsageError
from headwater.publish.constraints import sql
from headwater.publish.constraints.codec import constraints_of
from headwater.publish.constraints.declared import (
    columns_counted,
    columns_needed,
    link_of_cardinality,
    link_to,
    primary_key,
    resolved,
    validate_check,
)
from headwater.publish.constraints.model import Cardinality, Check, Constraints, ForeignKey
from headwater.publish.constraints.sql import Link, Question
from headwater.publish.constraints.values import Shown, Values, grown
from headwater.publish.errors import ConstraintBrokenError, ConstraintViolationError
from headwater.query.model import QueryUsageError

__all__ = ["Ask", "Changed", "check_changes", "check_table", "columns_counted", "columns_needed"]


class Ask(Protocol):
    """Answers about the end state. `publish/questions.py` has one that notes what it reads (P8)."""

    def __call__(self, sql: str, shown: Mapping[TableKey, pa.Table], /) -> pa.Table:
        """The answer to a SELECT over committed and pending rows; `shown` are more tables, for this question alone."""
        ...

    def metadata_of(self, key: TableKey, /) -> TableMetadata | None:
        """The table's metadata as it will be, or None when there is no such table."""
        ...


@dataclass(frozen=True)
class Changed:
    """A table that changes: its metadata as it will be, the rows that come, and the committed rows that go.

    `added` has at least the columns that `columns_needed` names, `removed` those of `columns_counted`. `removed` is of
    committed rows alone, never of rows that came and went within the change; None when no row goes. A row that is
    changed goes and comes.
    """

    metadata: TableMetadata
    added: pa.Table
    removed: pa.Table | None


def check_changes(ask: Ask, changed: Mapping[TableKey, Changed]) -> None:
    """Raise ConstraintViolationError unless the rows satisfy every constraint when the change has ended."""
    change = _Change(ask, changed)
    for key, each in changed.items():
        _refuse_nulls(key, each)
    _judge(ask, [question for key in sorted(changed) for question in change.questions(key)])


def check_table(ask: Ask, key: TableKey, metadata: TableMetadata) -> None:
    """The same for all rows of one table, whose constraints may be new."""
    known, schema = constraints_of(metadata), metadata.schema()
    by = _shown_as(key, metadata)
    questions = [sql.nulls(key, each, by) for each in known.required]
    if keys := primary_key(key, metadata):
        questions.append(sql.shared(key, sql.PRIMARY_KEY, keys))
    links = _links(ask, {}, key, metadata, known)
    questions += [sql.orphans(link) for link in links]
    for each in known.declared:
        match each:
            case Check():
                questions.append(sql.failing(key, each.name, _condition(key, each, metadata), by))
            case Cardinality():
                columns = resolved(key, each.name, schema, each.columns)
                if each.at_most is not None:
                    questions.append(sql.shared(key, each.name, columns, at_most=each.at_most))
                if each.at_least:
                    link = link_of_cardinality(key, each, links, schema)
                    questions.append(sql.lonely(link, each.name, each.at_least))
            case ForeignKey():
                pass
            case _:
                assert_never(each)
    _judge(ask, questions)


class _Change:
    """What a change must be asked about."""

    def __init__(self, ask: Ask, changed: Mapping[TableKey, Changed]) -> None:
        self._ask = ask
        self._changed = changed
        self._numbers = count()

    def questions(self, key: TableKey) -> Iterator[Question]:
        """Everything that the change of this table can have broken, in it or in another."""
        metadata = self._changed[key].metadata
        known = constraints_of(metadata)
        if keys := primary_key(key, metadata):
            if came := self._came(key, keys):
                yield sql.shared(key, sql.PRIMARY_KEY, keys, among=came)
            yield from self._as_parent(key, keys, known)
        links = _links(self._ask, self._changed, key, metadata, known)
        for link in links:
            if came := self._came(key, link.columns):
                yield sql.orphans(link, among=came)
        for each in known.declared:
            match each:
                case Check():
                    yield from self._checked(key, each, metadata)
                case Cardinality():
                    yield from self._counted(key, each, metadata, links)
                case ForeignKey():
                    pass
                case _:
                    assert_never(each)

    def _checked(self, key: TableKey, check: Check, metadata: TableMetadata) -> Iterator[Question]:
        condition, added = _condition(key, check, metadata), self._changed[key].added
        if added.num_rows:
            columns = [*columns_needed(metadata), *_shown_as(key, metadata)]
            rows = added.select(list(dict.fromkeys(columns)))
            yield sql.failing(
                key, check.name, condition, _shown_as(key, metadata), among=Shown(next(self._numbers), rows)
            )

    def _counted(
        self, key: TableKey, known: Cardinality, metadata: TableMetadata, links: list[Link]
    ) -> Iterator[Question]:
        columns = resolved(key, known.name, metadata.schema(), known.columns)
        if known.at_most is not None and (came := self._came(key, columns)):
            yield sql.shared(key, known.name, columns, at_most=known.at_most, among=came)
        if known.at_least:
            link = link_of_cardinality(key, known, links, metadata.schema())
            if gone := self._went(key, link.columns):
                yield sql.lonely(link, known.name, known.at_least, among=gone)

    def _as_parent(self, key: TableKey, keys: tuple[str, ...], known: Constraints) -> Iterator[Question]:
        """What other tables say about rows of this one that came or went."""
        if not known.referenced_by or not (self._came(key, keys) or self._went(key, keys)):
            return
        for child in known.referenced_by:
            metadata = self._changed[child].metadata if child in self._changed else self._ask.metadata_of(child)
            if metadata is None:
                raise ConstraintBrokenError(key, "foreign key", f"{child} refers to it, and is not there")
            theirs = constraints_of(metadata)
            links = [link for link in _links(self._ask, self._changed, child, metadata, theirs) if link.parent == key]
            for link in links:
                if gone := self._went(key, link.parent_columns):
                    yield sql.abandoned(link, gone)
            for each in theirs.declared:
                if not isinstance(each, Cardinality) or not each.at_least:
                    continue
                columns = set(resolved(child, each.name, metadata.schema(), each.columns))
                for link in (link for link in links if set(link.columns) == columns):
                    if came := self._came(key, link.parent_columns):
                        yield sql.lonely(link, each.name, each.at_least, among=came)

    def _came(self, key: TableKey, columns: tuple[str, ...]) -> Values | None:
        """Values that more rows have than before."""
        each = self._changed[key]
        return grown(each.added, each.removed, columns, number=next(self._numbers))

    def _went(self, key: TableKey, columns: tuple[str, ...]) -> Values | None:
        """Values that fewer rows have than before."""
        each = self._changed[key]
        return grown(each.removed, each.added, columns, number=next(self._numbers))


def _links(
    ask: Ask, changed: Mapping[TableKey, Changed], key: TableKey, metadata: TableMetadata, known: Constraints
) -> list[Link]:
    found = []
    for each in known.declared:
        if isinstance(each, ForeignKey):
            parent: TableMetadata | None
            if each.parent == key:
                parent = metadata
            elif each.parent in changed:
                parent = changed[each.parent].metadata
            else:
                parent = ask.metadata_of(each.parent)
            found.append(link_to(key, metadata, each, parent))
    return found


def _judge(ask: Ask, questions: list[Question]) -> None:
    """Ask all of them at once; the first that has an answer is the error."""
    if not questions:
        return
    shown = {key: rows for each in questions for key, rows in each.shown.items()}
    try:
        answer = ask(sql.combined(questions), shown)
    except QueryUsageError as error:
        raise _failed(ask, questions) or error from error
    if not answer.num_rows:
        return
    first = pc.min(answer["question"])
    examples = answer.filter(pc.equal(answer["question"], first))["example"].to_pylist()
    found = questions[first.as_py()]
    raise ConstraintViolationError(found.table, found.constraint, f"{found.told} {'; '.join(examples)}")


def _failed(ask: Ask, questions: list[Question]) -> ConstraintBrokenError | None:
    """Which of them it is that cannot be asked: a check that divides by zero, say."""
    for each in questions:
        try:
            ask(each.sql, each.shown)
        except QueryUsageError as error:
            return ConstraintBrokenError(each.table, each.constraint, error.message)
    return None


def _refuse_nulls(key: TableKey, changed: Changed) -> None:
    """Rows that come are in memory: nobody needs to be asked."""
    for column in constraints_of(changed.metadata).required:
        missing = changed.added[column].null_count
        if not missing:
            continue
        by = _shown_as(key, changed.metadata)
        rows = changed.added.filter(pc.is_null(changed.added[column])).slice(0, sql.EXAMPLES).select(by).to_pylist()
        texts = (", ".join(f"{each} = {'null' if row[each] is None else row[each]}" for each in by) for row in rows)
        raise ConstraintViolationError(
            key, sql.NOT_NULL, f"column {column} is null in {missing} of the rows: {'; '.join(texts)}"
        )


def _condition(key: TableKey, check: Check, metadata: TableMetadata) -> str:
    try:
        return validate_check(check.expression, metadata.schema()).sql
    except UsageError as error:
        raise ConstraintBrokenError(key, check.name, error.message) from error


def _shown_as(key: TableKey, metadata: TableMetadata) -> tuple[str, ...]:
    """The columns by which an error names a row: its key, or else what constraints mention."""
    return primary_key(key, metadata) or columns_needed(metadata)
