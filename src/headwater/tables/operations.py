"""What can be done to the rows of a table. Each operation is built, not made: it returns a staged change.

Rows become data files in the sink; without one they are part of what is staged. Every operation is one edit of files
(`model.Edit`), and `snapshot.stage_snapshot` makes all of them into snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import ROWS_MUST_MATCH, _StrictMetricsEvaluator, bind, extract_field_ids
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import DoubleType, FloatType
from pyroaring import BitMap64

from headwater.tables.filters import settle_filter
from headwater.tables.layout import TARGET_FILE_SIZE
from headwater.tables.model import (
    ROW_ID_COLUMN,
    UPDATED_COLUMN,
    Edit,
    FileTask,
    NewFile,
    RowDeletes,
    ScanPlan,
    Staged,
    TableFile,
    TableUsageError,
    TableVersion,
)
from headwater.tables.parquet import FileSink, Rows, write_rows
from headwater.tables.pruning import UNREADABLE
from headwater.tables.read import positions_of, read_task
from headwater.tables.scan import ALWAYS_TRUE, plan_scan
from headwater.tables.settling import another_version, same_deletes
from headwater.tables.snapshot import Staging, stage_snapshot


@dataclass
class CollectingSink:
    """Keeps new data files in memory, to be part of the staged change."""

    files: list[NewFile] = field(default_factory=list)

    def write(self, files: Iterable[NewFile]) -> None:
        """Keep them."""
        self.files.extend(files)


def append(staging: Staging, base: TableVersion, rows: Rows, *, sink: FileSink | None = None) -> Staged:
    """Add rows."""
    return _stage(staging, base, Edit(), Operation.APPEND, rows, sink)


def overwrite(
    staging: Staging,
    base: TableVersion,
    rows: Rows,
    *,
    where: BooleanExpression = ALWAYS_TRUE,
    sink: FileSink | None = None,
) -> Staged:
    """Put these rows, of which there may be none, in the place of all that match `where`."""
    return _stage(staging, base, _deletion(staging, base, where), Operation.OVERWRITE, rows, sink)


def delete(staging: Staging, base: TableVersion, where: BooleanExpression) -> Staged:
    """Delete the rows that match."""
    return stage_snapshot(staging, base, _deletion(staging, base, where), Operation.DELETE)


def delete_positions(staging: Staging, base: TableVersion, positions: Mapping[str, BitMap64]) -> Staged:
    """Delete rows by data file and position."""
    tasks = {task.file.file_path: task for task in plan_scan(staging.files, base.metadata).tasks}
    unknown = sorted(positions.keys() - tasks.keys())
    if unknown:
        raise TableUsageError(f"{unknown[0]} is not a data file of {base.metadata.location}", path=unknown[0])
    edit = Edit(deletes=tuple(RowDeletes(tasks[path], each) for path, each in positions.items()))
    return stage_snapshot(staging, base, edit, Operation.DELETE)


def edit_positions(
    staging: Staging,
    base: TableVersion,
    deletes: Sequence[tuple[FileTask, BitMap64]],
    rows: Rows | None,
    *,
    sink: FileSink | None = None,
) -> Staged:
    """Delete rows of known files and add others, as one snapshot: what an update comes down to.

    The tasks are of a plan of this very base: one whose file has gone, or has other deletes by now, is refused.
    """
    _of_this_version(plan_scan(staging.files, base.metadata), [task for task, _ in deletes])
    return edit_planned(staging, base, deletes, rows, sink=sink)


def edit_planned(
    staging: Staging,
    base: TableVersion,
    deletes: Sequence[tuple[FileTask, BitMap64]],
    rows: Rows | None,
    *,
    sink: FileSink | None = None,
) -> Staged:
    """As `edit_positions`, for a caller that has just made the plan itself: that no file has gone is not checked."""
    edit = Edit(deletes=tuple(RowDeletes(task, positions) for task, positions in deletes))
    if rows is None:
        return stage_snapshot(staging, base, edit, Operation.DELETE)
    return _stage(staging, base, edit, Operation.OVERWRITE if edit.deletes else Operation.APPEND, rows, sink)


@dataclass(frozen=True)
class Rewritten:
    """New data files that hold the live rows of others, as they were at the snapshot of this number."""

    tasks: tuple[FileTask, ...]
    added: tuple[TableFile, ...]
    sequence_number: int | None


def rewrite(staging: Staging, base: TableVersion, tasks: Sequence[FileTask], *, sink: FileSink | None = None) -> Staged:
    """Write the live rows of these data files into new ones, and let the old ones and their deletes go."""
    plan, collected = plan_scan(staging.files, base.metadata), CollectingSink()
    staged = stage_rewrite(staging, base, [rewrite_files(staging, plan, tasks, sink=sink or collected)])
    return replace(staged, files=(*collected.files, *staged.files))


def rewrite_files(
    staging: Staging,
    plan: ScanPlan,
    tasks: Sequence[FileTask],
    *,
    sink: FileSink,
    target_size_bytes: int | None = None,
) -> Rewritten:
    """Write the live rows of these data files into new ones, of about this size, which no snapshot holds yet.

    The rows stay what they were: new files take the number of the base snapshot, up to which deletes have been folded
    in, and on v3 each row carries its id and the number of its last update (P11).
    """
    metadata = plan.metadata
    if plan.snapshot is None or not tasks:
        raise TableUsageError(f"there is nothing to rewrite in {metadata.location}")
    current = _of_this_version(plan, tasks)
    lineage = frozenset({ROW_ID_COLUMN, UPDATED_COLUMN}) if metadata.format_version >= 3 else frozenset()
    batches = (
        batch
        for task in current
        for batch in read_task(staging.files, task, plan=plan, extra=lineage)
        if batch.num_rows
    )
    if target_size_bytes is not None:
        properties = {**metadata.properties, TARGET_FILE_SIZE: str(target_size_bytes)}
        metadata = metadata.model_copy(update={"properties": properties})
    added = write_rows(
        batches,
        metadata=metadata,
        files=sink,
        randomness=staging.randomness,
        operation=staging.operation,
        placing=staging.placing,
    )
    return Rewritten(current, added, sequence_number=plan.snapshot.sequence_number)


def stage_rewrite(staging: Staging, base: TableVersion, groups: Sequence[Rewritten]) -> Staged:
    """Let rewritten files take the place of those that they were made of, as one snapshot.

    The base may be a later version than the one that was read: refused when an input has gone, or has other deletes by
    now, because rows would come back (P11).
    """
    tasks = [task for group in groups for task in group.tasks]
    numbers = {group.sequence_number for group in groups}
    if len(numbers) != 1:
        raise TableUsageError(f"what was rewritten is not of one version of {base.metadata.location}")
    _of_this_version(plan_scan(staging.files, base.metadata), tasks)
    edit = Edit(
        added=tuple(file for group in groups for file in group.added),
        removed=frozenset(task.file.file_path for task in tasks),
        sequence_number=numbers.pop(),
    )
    return stage_snapshot(staging, base, edit, Operation.REPLACE)


def _of_this_version(plan: ScanPlan, tasks: Iterable[FileTask]) -> tuple[FileTask, ...]:
    """The tasks of the plan for these files, each once; refused when one was planned on another version."""
    known = {task.file.file_path: task for task in plan.tasks}
    for task in tasks:
        path = task.file.file_path
        if path not in known or not same_deletes(task, known[path]):
            raise another_version(path, plan.metadata)
    return tuple(known[path] for path in dict.fromkeys(task.file.file_path for task in tasks))


def _stage(
    staging: Staging, base: TableVersion, edit: Edit, operation: Operation, rows: Rows, sink: FileSink | None
) -> Staged:
    collected = CollectingSink()
    added = write_rows(
        rows,
        metadata=base.metadata,
        files=sink or collected,
        randomness=staging.randomness,
        operation=staging.operation,
        placing=staging.placing,
    )
    staged = stage_snapshot(staging, base, replace(edit, added=added), operation)
    return replace(staged, files=(*collected.files, *staged.files))


def _deletion(staging: Staging, base: TableVersion, where: BooleanExpression) -> Edit:
    """Files whose every row matches go as a whole; of the others, the rows that match."""
    plan = plan_scan(staging.files, base.metadata, row_filter=where)
    must_match = _MustMatch(plan.schema, settle_filter(where, plan.schema))
    removed: set[str] = set()
    deletes: list[RowDeletes] = []
    for task in plan.tasks:
        if must_match.every_row_of(task.file):
            removed.add(task.file.file_path)
            continue
        positions = positions_of(staging.files, task, base.metadata, where)
        if positions:
            deletes.append(RowDeletes(task, positions))
    return Edit(removed=frozenset(removed), deletes=tuple(deletes))


class _MustMatch:
    """Proofs, from metadata alone, that every row of a file matches.

    PyIceberg's evaluator takes a null for a match of `!=` and `NOT IN`, which it is not, and a count that is missing
    for none. So it is asked only about files that are known to have no null in any column of the filter, and about
    columns that cannot be NaN.
    """

    def __init__(self, schema: Schema, where: BooleanExpression) -> None:
        self._everything = isinstance(where, AlwaysTrue)
        self._evaluator = _StrictMetricsEvaluator(schema, where)
        self._columns = extract_field_ids(bind(schema, where, case_sensitive=True))
        plain = {field.field_id for field in schema.fields if field.field_type.is_primitive}
        floats = {field.field_id for field in schema.fields if isinstance(field.field_type, (FloatType, DoubleType))}
        self._may_ask = self._columns <= plain - floats

    def every_row_of(self, file: TableFile) -> bool:
        """Whether the file can go without being read."""
        if self._everything:
            return True
        nulls = file.null_value_counts or {}
        known = self._may_ask and all(nulls.get(column) == 0 for column in self._columns)
        if not known or file.record_count < 1:  # fewer rows than one is a count that its writer did not know
            return False
        try:
            return self._evaluator.eval(file) == ROWS_MUST_MATCH
        except UNREADABLE:
            return False
