"""What another engine staged, looked at before it is published: its files, and what the tables demand of rows.

An engine that speaks the Iceberg protocol writes data files, manifests and a manifest list by itself, and asks only for
the document to change. It knows nothing of the constraints of a lake. So whatever it brings is read here (P5):

    new snapshots     their lists and their new manifests can be read, and their files are there (foreign_files.py)
    columns           what a constraint mentions keeps its name and its identity
    rows              the rows of the files that came or went satisfy every constraint, those of other tables too; a
                      table that is new, or has other constraints than before, is judged whole

Nothing is written here. What was read for a judgement is returned, so that the publish can compare it (P8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from headwater.catalog.model import Content, TableKey
from headwater.publish.branches.documents import shape_of
from headwater.publish.branches.rows import Asking, rows_of_differing_files
from headwater.publish.constraints.check import Changed, check_changes, check_table, columns_needed
from headwater.publish.constraints.codec import constraints_of
from headwater.publish.constraints.declared import column_named
from headwater.publish.errors import ConstraintBrokenError
from headwater.publish.foreign_files import brought_files, check_places
from headwater.publish.questions import Questions
from headwater.publish.state import State
from headwater.query import Pending, QueryOptions
from headwater.tables.files import Files
from headwater.tables.model import FileTask, LiveFile, ScanPlan, TableCorruptError, TableUsageError
from headwater.tables.read import read_task


@dataclass(frozen=True)
class Arrival:
    """A table as it is, None when it is new, and as another engine wants it to be."""

    key: TableKey
    before: TableMetadata | None
    after: TableMetadata

    @property
    def is_moved(self) -> bool:
        """Whether readers would see other rows."""
        before = None if self.before is None else self.before.current_snapshot_id
        return self.after.current_snapshot_id != before

    @property
    def is_judged_whole(self) -> bool:
        """Whether the rows that are there must be looked at too."""
        return self.before is None or _own(self.before) != _own(self.after)


def judge(state: State, arrivals: Sequence[Arrival], options: QueryOptions) -> dict[TableKey, Content | None]:
    """Raise what the changes violate; returns the versions of everything that was read for that."""
    brought = {}
    for each in arrivals:
        check_places(state.files, each.before, each.after)
        brought[each.key] = brought_files(state.files, each.key, each.before, each.after)
        _check_columns(each)
    try:
        return _judge_rows(state, arrivals, options, brought)
    except TableCorruptError as error:
        found = (file for each in brought.values() for entries in each.values() for file in entries)
        if error.fields.get("path") not in {each.file.file_path for each in found}:
            raise
        raise TableUsageError(
            f"a file cannot be read: {error.message}", hint="write it anew, and commit that", **error.fields
        ) from error


def _judge_rows(
    state: State,
    arrivals: Sequence[Arrival],
    options: QueryOptions,
    brought: Mapping[TableKey, Mapping[int, Sequence[LiveFile]]],
) -> dict[TableKey, Content | None]:
    asked = {each.key: columns for each in arrivals if (columns := columns_needed(each.after))}
    if not asked:
        return {}  # nothing is demanded of any row, so no question is asked
    shown = {each.key: _with_nulls(each.after) for each in arrivals}
    questions = Questions(state, options, pending=Pending(overrides=shown))
    changed: dict[TableKey, Changed] = {}
    for each in arrivals:
        needed = asked.get(each.key)
        if not needed or (each.after.current_snapshot_id is None and each.before is None):
            continue
        if each.is_judged_whole:
            check_table(questions, each.key, each.after)
        if each.before is not None and each.is_moved and not _has_no_new_nulls(state.files, each, brought[each.key]):
            old = _with_nulls(each.before.model_copy(update=shape_of(each.after)))
            removed, added = rows_of_differing_files(Asking(state.files, options), old, shown[each.key], needed)
            changed[each.key] = Changed(each.after, added, removed if removed.num_rows else None)
    check_changes(questions, changed)
    return questions.reads


def _has_no_new_nulls(files: Files, arrival: Arrival, brought: Mapping[int, Sequence[LiveFile]]) -> bool:
    """Whether the table demands nothing but that columns are not null, and no file that came has a null in them.

    What is in the new files is enough to know that, and no question needs to be asked. False proves nothing.
    """
    known = constraints_of(arrival.after)
    if known.primary_key or known.declared or known.referenced_by or arrival.is_judged_whole:
        return False
    snapshots = _since(arrival)
    if snapshots is None or any(each.snapshot_id not in brought for each in snapshots):
        return False
    plan = ScanPlan(_with_nulls(arrival.after), _with_nulls(arrival.after).schema(), None, ())
    for snapshot in snapshots:
        for each in brought.get(snapshot.snapshot_id, ()):
            if each.file.content is not DataFileContent.DATA:
                continue
            task = FileTask(each.file, each.sequence_number)
            for batch in read_task(files, task, plan=plan, columns=known.required):
                if any(column.null_count for column in batch.columns):
                    return False
    return True


def _since(arrival: Arrival) -> list[Snapshot] | None:
    """The snapshots that lead from the current one of before to that of after; None when it is no way forward."""
    assert arrival.before is not None
    found, at = [], arrival.after.current_snapshot()
    while at is not None and at.snapshot_id != arrival.before.current_snapshot_id:
        found.append(at)
        at = arrival.after.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id is not None else None
    reached = None if at is None else at.snapshot_id
    return found if reached == arrival.before.current_snapshot_id else None


def _own(metadata: TableMetadata) -> object:
    """What the rows of the table itself must satisfy."""
    return replace(constraints_of(metadata), referenced_by=())


def _check_columns(arrival: Arrival) -> None:
    """Refuse to take from a constraint a column that it mentions, or a key that others refer to."""
    if arrival.before is None:
        return
    known = constraints_of(arrival.before)
    if not known.declared and not known.referenced_by:
        return
    old, new = arrival.before.schema(), arrival.after.schema()
    # What the schema itself demands is left aside: a key that is renamed is judged anew with its rows.
    for column in columns_needed(_with_nulls(arrival.before)):
        found = column_named(new, column)
        if found is None or new.find_field(found).field_id != old.find_field(column).field_id:
            raise ConstraintBrokenError(arrival.key, column, f"column {column} would be renamed or dropped")
    if known.referenced_by and set(known.primary_key) != set(constraints_of(arrival.after).primary_key):
        others = ", ".join(map(str, known.referenced_by))
        raise ConstraintBrokenError(arrival.key, "primary key", f"{others} refers to it, and it would change")


def _with_nulls(metadata: TableMetadata) -> TableMetadata:
    """The table as it is read to be judged: who takes a column for required looks for no null in it."""
    schema = metadata.schema()
    fields = (each.model_copy(update={"required": False}) for each in schema.fields)
    shown = Schema(*fields, schema_id=schema.schema_id)
    others = [each for each in metadata.schemas if each.schema_id != schema.schema_id]
    return metadata.model_copy(update={"schemas": [*others, shown]})
