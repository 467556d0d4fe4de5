"""Which file is broken, and of which table it is: DuckDB tells neither, or only the name that we gave to the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headwater.kernel.errors import HeadwaterError
from headwater.query.failures import about
from headwater.query.relations import Wanted
from headwater.tables.files import Files
from headwater.tables.read import read_task


def with_table(error: HeadwaterError, tables: Iterable[Wanted]) -> HeadwaterError:
    """An error about a file, with the table that the file is of."""
    path = str(error.fields.get("path"))
    for wanted in tables:
        if any(task.file.file_path.endswith(path) for task in wanted.plan.tasks):
            try:
                with about(wanted.label):
                    raise error
            except HeadwaterError as named:
                return named
    return error


def look_for_damage(files: Files, tables: Iterable[Wanted], check_time: Callable[[], None]) -> HeadwaterError | None:
    """Read every file of the query by other means than DuckDB's; the error of the first that is broken, if any."""
    try:
        for wanted in tables:
            with about(wanted.label):
                for task in wanted.plan.tasks:
                    check_time()
                    for _ in read_task(files, task, plan=wanted.plan):
                        check_time()
    except HeadwaterError as damage:
        return damage
    return None
