"""What a merge leaves of each table, and the wishes for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import TableContent, TableKey, ViewContent
from headwater.publish.branches.documents import following
from headwater.publish.branches.model import Place, Step, Take, TakeNamespace
from headwater.publish.model import Replaced, TableWish
from headwater.publish.sql.working import WorkingTable
from headwater.tables.model import Staged, TableVersion
from headwater.tables.operations import edit_planned
from headwater.tables.scan import plan_scan
from headwater.tables.snapshot import Staging


@dataclass(frozen=True)
class Result:
    """A table as the merge leaves it. `version` and `pinned` are what the target holds of it, None when it is new.

    `made_from` is the source's version where its document was taken. `rows` are changes that are laid over the
    document, where both sides changed rows.
    """

    key: TableKey
    before: Place | None
    version: TableVersion | None
    metadata: TableMetadata
    made_from: TableContent | None = None
    rows: WorkingTable | None = None

    @property
    def pinned(self) -> TableContent | None:
        """What the target holds."""
        content = self.before.content if self.before else None
        assert not isinstance(content, ViewContent)  # its identity is a table's
        return content


def wish_for(result: Result, staging: Staging, now: datetime) -> TableWish:
    """The table's next version on the target."""
    if result.rows is None:
        staged = Staged(following(result.metadata, result.version, staging.operation, now))
    else:
        tasks = {each.file.file_path: each for each in plan_scan(staging.files, result.metadata).tasks}
        deletes = [(tasks[path], places) for path, places in result.rows.deletes.items()]
        staged = edit_planned(staging, result.rows.version, deletes, result.rows.staged_rows)
    renamed_from = result.before.key if result.before and result.before.key != result.key else None
    return TableWish(result.key, result.pinned, staged, renamed_from, result.made_from)


def drops(steps: Sequence[Step]) -> Iterator[TableWish]:
    """The tables that go."""
    for step in steps:
        if isinstance(step, Take) and step.after is None and step.before is not None:
            content = step.before.content
            if isinstance(content, TableContent):
                yield TableWish(step.before.key, content, None)


def others(steps: Sequence[Step]) -> dict[TableKey, Replaced]:
    """Views and namespaces, which change by the commit alone."""
    found: dict[TableKey, Replaced] = {}
    for step in steps:
        if isinstance(step, TakeNamespace):
            found[step.key] = Replaced(step.before, step.after)
        elif isinstance(step, Take) and step.is_view:
            if step.before is not None:
                found[step.before.key] = Replaced(step.before.content, None)
            if step.after is not None:
                held = found.get(step.after.key)
                found[step.after.key] = Replaced(held.before if held else None, step.after.content)
    return found
