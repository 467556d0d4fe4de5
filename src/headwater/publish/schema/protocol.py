"""Applying a script of DDL.

Promise: the whole script is one commit, or nothing of it is. What it demands of rows holds for every row that is there.

Invariants:

    1  Nothing is written before every statement was carried out on paper, what tables demand of each other was judged,
       and the rows that are there were looked at.
    2  Everything that the decision rests on is in the wish: each name that the script speaks of, whether something was
       there or not, and each table whose rows were read. The publish compares all of it (P8).
    3  What changes for the sake of another table changes with it: a foreign key and the list of its parent, the names
       by which one table speaks of another. So whoever changes what two tables are to each other changes both, and a
       table that is only looked at because it is related to another need not be compared: its rows may go on changing.
    4  No head moves for a commit that drops a namespace: the catalog alone judges whether it is empty, at the commit.

Commit point: that of the publish (publish/protocol.py), whose four steps every table takes whose document changes. A
renamed table keeps its content, its folder and its sequence of versions: its head moves once, its old name goes and its
new one comes in the same commit. Views and namespaces have no head: they change by the commit alone.

Steps, and what a crash after each leaves behind:

    read the script, look names up     nothing
    plan, ask rows, ask views          nothing
    publish                            what publish/protocol.py says; files of views that nothing refers to
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.catalog.model import TableKey
from headwater.publish.constraints.check import check_table
from headwater.publish.creation import born
from headwater.publish.model import Replaced, TableWish, Wish, WriterKind
from headwater.publish.schema.after import Asking, StateAfter
from headwater.publish.schema.model import Action, Kind, ObjectChange, Plan, PlannedTable
from headwater.publish.schema.others import Others
from headwater.publish.schema.plan import plan
from headwater.publish.schema.standing import SchemaState, look_up
from headwater.publish.schema.wanted import Statement
from headwater.query import QueryOptions
from headwater.tables.head import OPERATION
from headwater.tables.metadata_log import with_log_entry
from headwater.tables.model import Staged
from headwater.tables.snapshot import Staging

_LONGEST_MESSAGE = 200


@dataclass(frozen=True)
class Prepared:
    """A script that is ready to be published: what it changes, and the wish for it; None when it changes nothing."""

    changes: tuple[ObjectChange, ...]
    wish: Wish | None


def prepare(
    statements: Sequence[Statement],
    state: SchemaState,
    *,
    lake: str,
    staging: Staging,
    actor: str,
    message: str | None,
    options: QueryOptions,
) -> Prepared:
    """Everything up to the publish. `lake` is the location of its tables."""
    standing = look_up(statements, state)
    planned = plan(
        statements,
        standing,
        born=lambda wanted: born(wanted, lake=lake, ref=state.ref, staging=staging),
        now=staging.clock.now(),
    )
    after = StateAfter(state, planned)
    questions = Asking(after, options)
    for key, each in sorted(planned.tables.items()):
        if each.check_rows:
            check_table(questions, key, each.metadata)
    others, files = Others(lake, staging, standing, questions).of(planned)
    changes = tuple(_told(planned, others))
    if not changes:
        return Prepared((), None)
    tables = [_wish_of(each, staging) for each in planned.tables.values()]
    tables += [TableWish(key, content, None) for key, (content, _) in planned.dropped.items()]
    touched = {*others, *(key for each in tables for key in each.keys)}
    named = {key: content for key, content in standing.contents.items() if key not in standing.around}
    reads = {**named, **questions.reads}
    wish = Wish(
        kind=WriterKind.SCHEMA_APPLY,
        actor=actor,
        message=message or _message(changes),
        branch=state.ref.name,
        branch_incarnation=state.ref.incarnation,
        operation=staging.operation,
        tables=tuple(tables),
        reads={key: content for key, content in reads.items() if key not in touched},
        others=others,
        files=files,
    )
    return Prepared(changes, wish)


def _wish_of(planned: PlannedTable, staging: Staging) -> TableWish:
    """The next version of the table."""
    metadata = planned.metadata
    metadata = metadata.model_copy(update={"properties": {**metadata.properties, OPERATION: staging.operation}})
    if planned.base is not None and planned.base.location is not None:
        metadata = with_log_entry(metadata, planned.base.location, planned.base.metadata.last_updated_ms)
    return TableWish(planned.key, planned.pinned, Staged(metadata), planned.renamed_from)


def _told(planned: Plan, others: dict[TableKey, Replaced]) -> Iterator[ObjectChange]:
    """What the plan changes, in words; views that stay what they are are left out."""
    for key, (_, text) in sorted(planned.namespaces.items()):
        yield ObjectChange(Action.CREATE, Kind.NAMESPACE, key, (text,))
    for key, each in sorted(planned.tables.items()):
        action = Action.CREATE if each.base is None else Action.RENAME if each.renamed_from else Action.ALTER
        yield ObjectChange(action, Kind.TABLE, key, each.why, each.renamed_from)
    for key, (_, why) in sorted(planned.dropped.items()):
        yield ObjectChange(Action.DROP, Kind.TABLE, key, why)
    for key, (_, text, _) in sorted(planned.views.items()):
        if key in others:
            yield ObjectChange(Action.ALTER if others[key].before else Action.CREATE, Kind.VIEW, key, (text,))
    for key, text in sorted(planned.dropped_views.items()):
        yield ObjectChange(Action.DROP, Kind.VIEW, key, (text,))
    for key, text in sorted(planned.dropped_namespaces.items()):
        yield ObjectChange(Action.DROP, Kind.NAMESPACE, key, (text,))


def _message(changes: Sequence[ObjectChange]) -> str:
    text = ", ".join(f"{each.action} {each.kind} {each.key}" for each in changes)
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 1] + "…"
