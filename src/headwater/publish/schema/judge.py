"""What tables demand of each other, judged on the end state of a script. Pure.

A foreign key leads to the primary key of a table that is there, over columns of types that can be compared. A parent
lists the tables that refer to it. A least number of rows counts for each row of a parent, so it needs a foreign key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from headwater.catalog.model import TableKey
from headwater.kernel.errors import RefusedError, UsageError
from headwater.publish.constraints.codec import constraints_of
from headwater.publish.constraints.declared import column_named
from headwater.publish.constraints.model import Cardinality, Constraint, ForeignKey
from headwater.publish.schema.demands import Draft
from headwater.tables.rules import may_widen


def settled_keys(draft: Draft, drafts: Mapping[TableKey, Draft], known: Collection[TableKey]) -> Draft:
    """The table with its foreign keys complete; refused where one leads nowhere.

    `known` are all names that were looked up: a parent that is none of them is not touched by the script.
    """
    declared = tuple(
        _settled(draft, each, drafts) if isinstance(each, ForeignKey) and _is_judged(each, drafts, known) else each
        for each in draft.declared
    )
    linked = [set(each.columns) for each in declared if isinstance(each, ForeignKey)]
    for each in declared:
        if isinstance(each, Cardinality) and each.at_least and set(each.columns) not in linked:
            raise UsageError(
                f"constraint {each.name} of {draft.key} asks for at least {each.at_least} rows, and no foreign key "
                f"says of what: none is over {', '.join(each.columns)}",
                hint="a least number counts for each row of the table that these columns refer to",
                table=str(draft.key),
                constraint=each.name,
            )
    return replace(draft, declared=declared)


def _is_judged(each: ForeignKey, drafts: Mapping[TableKey, Draft], known: Collection[TableKey]) -> bool:
    return each.parent in drafts or each.parent in known


def _settled(draft: Draft, each: ForeignKey, drafts: Mapping[TableKey, Draft]) -> ForeignKey:
    parent = drafts.get(each.parent)
    if parent is None:
        raise UsageError(
            f"constraint {each.name} of {draft.key} refers to {each.parent}, which is no table",
            hint="create it in the same script, or drop the constraint",
            table=str(draft.key),
            constraint=each.name,
        )
    key = parent.primary_key
    if not each.parent_columns and len(key) > 1:
        raise UsageError(
            f"constraint {each.name} of {draft.key} does not say which columns of {each.parent} it means",
            hint=f"REFERENCES {each.parent} ({', '.join(key)}), in the order of {', '.join(each.columns)}",
            constraint=each.name,
        )
    named = each.parent_columns or key
    columns = tuple(column_named(parent.schema, name) or name for name in named)
    if not key or set(columns) != set(key) or len(columns) != len(key) or len(columns) != len(each.columns):
        has = f"its primary key is {', '.join(key)}" if key else "it has no primary key"
        raise UsageError(
            f"constraint {each.name} of {draft.key} refers to {each.parent} ({', '.join(columns)}): {has}",
            hint="a foreign key refers to the whole primary key, each column to one of it",
            table=str(draft.key),
            constraint=each.name,
        )
    for own, other in zip(each.columns, columns, strict=True):
        mine, theirs = draft.schema.find_field(own).field_type, parent.schema.find_field(other).field_type
        if not may_widen(mine, theirs) and not may_widen(theirs, mine):
            raise UsageError(
                f"constraint {each.name} of {draft.key}: {own} is {mine}, and {other} of {each.parent} is {theirs}",
                hint="give both the same type",
                table=str(draft.key),
                constraint=each.name,
            )
    return replace(each, parent_columns=columns)


def refuse_orphans(dropped: TableKey, drafts: Mapping[TableKey, Draft]) -> None:
    """Refuse to drop a table while another refers to it."""
    for draft in drafts.values():
        for each in draft.declared:
            if isinstance(each, ForeignKey) and each.parent == dropped and dropped not in drafts:
                raise RefusedError(
                    f"{each.parent} cannot be dropped: {draft.key} refers to it (constraint {each.name})",
                    hint=f"drop {draft.key} or its constraint in the same script",
                    table=str(each.parent),
                    child=str(draft.key),
                    constraint=each.name,
                )


def referenced_by(draft: Draft, drafts: Mapping[TableKey, Draft], known: Collection[TableKey]) -> tuple[TableKey, ...]:
    """The tables that refer to this one: those that the script knows by their end state, others as before."""
    others = [each for each in constraints_of(draft.metadata).referenced_by if each not in known]
    return tuple(sorted({*others, *_children(draft.key, drafts)}))


def asked_more(draft: Draft) -> frozenset[TableKey]:
    """The tables for each of whose rows this one wants more rows than before the script.

    Who adds rows to such a table looks at what is demanded of it, and not at the rows here, so no version that it read
    has changed: its own table gets a new one instead (P8).
    """
    before = constraints_of(draft.base.metadata).declared if draft.base is not None else ()
    return frozenset(parent for parent, _, _ in _least(draft.declared) - _least(before))


def _least(declared: Collection[Constraint]) -> set[tuple[TableKey, frozenset[str], int]]:
    return {
        (link.parent, frozenset(each.columns), each.at_least)
        for each in declared
        if isinstance(each, Cardinality) and each.at_least
        for link in declared
        if isinstance(link, ForeignKey) and set(link.columns) == set(each.columns)
    }


def _children(key: TableKey, drafts: Mapping[TableKey, Draft]) -> Iterator[TableKey]:
    for draft in drafts.values():
        if any(isinstance(each, ForeignKey) and each.parent == key for each in draft.declared):
            yield draft.key
