"""Which tables are optimized, and one job for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headwater.catalog.model import TableContent, TableKey
from headwater.kernel.errors import HeadwaterError, UsageError
from headwater.publish.optimize.model import End, Optimized, Progress, Purpose, Spec, TableOutcome
from headwater.publish.optimize.protocol import Rewriter, Stand
from headwater.publish.service import AnyWriting

# In place of a table: all of them are meant.
_ANY = TableKey.parse("any")


def spec_of(
    branch: str,
    *,
    target_size_bytes: int | None,
    min_files: int,
    delete_ratio: float,
    all_deletes: bool,
) -> Spec:
    """What is wanted of each table; what makes no sense is refused."""
    if target_size_bytes is not None and target_size_bytes < 1:
        raise UsageError(f"files cannot be {target_size_bytes} bytes large", hint="give a size above zero")
    if min_files < 1:
        raise UsageError(f"{min_files} files cannot become one", hint="give a number above zero")
    if not 0 < delete_ratio <= 1:
        raise UsageError(f"{delete_ratio} is no part of a file's rows", hint="give a number above 0, and up to 1")
    return Spec(
        _ANY,
        branch,
        target_size_bytes=target_size_bytes,
        min_files=min_files,
        delete_ratio=delete_ratio,
        all_deletes=all_deletes,
    )


def indices_of(branch: str) -> Spec:
    """What is wanted of each table when what it declares is to be built."""
    return Spec(_ANY, branch, Purpose.INDICES)


def each_table(
    writing: AnyWriting,
    stand: Stand,
    tables: Sequence[str] | str | None,
    wanted: Spec,
    *,
    actor: str,
    dry_run: bool,
    progress: Progress | None = None,
) -> Optimized:
    """A job for each of these tables, one after the other; None: for every table of the branch.

    The error of a table that was asked for by name is raised. Of all tables, it is told in the place of the one that
    has it, and the others go on.
    """
    keys = _every_table(stand) if tables is None else _named(tables)
    rewriter = Rewriter(writing, stand, actor=actor, progress=progress)
    found = []
    for key in keys:
        spec = replace(wanted, table=key)
        try:
            found.append(rewriter.look(spec) if dry_run else rewriter.run(spec))
        except HeadwaterError as error:
            if tables is not None:
                raise
            found.append(TableOutcome(key, End.FAILED, why=error.message, error=error))
    return Optimized(tuple(found))


def _named(tables: Sequence[str] | str) -> list[TableKey]:
    names = [tables] if isinstance(tables, str) else tables
    return list(dict.fromkeys(TableKey.parse(name) for name in names))


def _every_table(stand: Stand) -> list[TableKey]:
    with stand() as (state, _):
        return [key for key in state.names() if isinstance(state.content(key), TableContent)]
