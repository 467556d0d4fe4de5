"""`headwater optimize|indices|compactions`: write small files together, build indices, and see who is at it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click
from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import TaskID

from headwater.app import App
from headwater.catalog.model import TableKey
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.cli.lakes import lake_and_rest, split, words, words_and, write_region_option
from headwater.cli.output import json_option, print_json, print_table
from headwater.kernel.settings import user_name
from headwater.publish.optimize.codec import encode_compactions
from headwater.publish.optimize.model import (
    DEFAULT_DELETE_RATIO,
    DEFAULT_MIN_FILES,
    End,
    Optimized,
    Progress,
    TableOutcome,
)

F = TypeVar("F", bound=Callable[..., object])


def _common_options(command: F) -> F:
    command = write_region_option(json_option(command))
    command = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")(command)
    command = click.option("--actor", help="Who does it; the user's name by default.")(command)
    return click.option("--branch", default=DEFAULT_BRANCH, show_default=True, help="The branch to work on.")(command)


@click.command()
@words_and("[TABLE...]")
@click.option("--target-size", "target_size_bytes", type=int, metavar="BYTES", help="How large files are to become.")
@click.option("--min-files", default=DEFAULT_MIN_FILES, show_default=True, help="How many small files are worth it.")
@click.option(
    "--delete-ratio",
    default=DEFAULT_DELETE_RATIO,
    show_default=True,
    help="Fold deletes into files of which this part is deleted.",
)
@click.option("--deletes", is_flag=True, help="Fold all deletes.")
@_common_options
@click.pass_obj
def optimize(
    app: App,
    words: tuple[str, ...],
    target_size_bytes: int | None,
    min_files: int,
    delete_ratio: float,
    deletes: bool,
    branch: str,
    actor: str | None,
    dry_run: bool,
    region: str | None,
    as_json: bool,
) -> None:
    """Write small files together and fold deletes into them: of some tables, or of all. Rows stay what they are.

    Declared sort order, Bloom filters and statistics are refreshed. A table that others change meanwhile is given up,
    if its files are no longer what they were, and is left as it is.
    """
    url, tables = _lake_and_tables(app, words)
    lake = app.open_lake(url, sweep=not dry_run, region=region)
    with _shown_progress(quiet=as_json) as progress:
        found = lake.optimize(
            tables,
            branch=branch,
            actor=actor or user_name(),
            target_size_bytes=target_size_bytes,
            min_files=min_files,
            delete_ratio=delete_ratio,
            deletes=deletes,
            dry_run=dry_run,
            progress=progress,
        )
    _show(found, dry_run=dry_run, as_json=as_json)


@click.command()
@words_and("[TABLE...]")
@_common_options
@click.pass_obj
def indices(
    app: App,
    words: tuple[str, ...],
    branch: str,
    actor: str | None,
    dry_run: bool,
    region: str | None,
    as_json: bool,
) -> None:
    """Build what tables declare and lack: sort order, Bloom filters, statistics. What is there stays as it is.

    \b
    write.parquet.bloom-filter-enabled.column.<c> = true     a Bloom filter for column c
    headwater.statistics.columns = a, b                      how many different values columns have
    headwater.statistics.partitions = true                   what is in each partition
    """
    url, tables = _lake_and_tables(app, words)
    lake, who = app.open_lake(url, sweep=False, region=region), actor or user_name()
    with _shown_progress(quiet=as_json) as progress:
        found = lake.ensure_indices(tables, branch=branch, actor=who, dry_run=dry_run, progress=progress)
    _show(found, dry_run=dry_run, as_json=as_json)


@click.command()
@words
@json_option
@click.pass_obj
def compactions(app: App, words: tuple[str, ...], as_json: bool) -> None:
    """List rewrite jobs: those that run, and the last that have ended."""
    url, _ = split(app, words)
    state = app.open_lake(url, sweep=False).writing.jobs.read()
    if as_json:
        print_json(json.loads(encode_compactions(state))["jobs"])
    elif state.runs:
        rows = [
            (number, job.spec.purpose, job.spec.table, job.spec.branch, job.actor, run.state, run.why)
            for number, (job, run) in state.runs.items()
        ]
        print_table(("job", "purpose", "table", "branch", "actor", "state", "why"), rows)
    else:
        click.echo("there are no jobs")


@contextmanager
def _shown_progress(*, quiet: bool) -> Iterator[Progress]:
    """A bar for each table that is at work, on a terminal only."""
    bars: dict[TableKey, TaskID] = {}
    with RichProgress(console=Console(stderr=True), disable=quiet or not sys.stderr.isatty(), transient=True) as shown:

        def told(key: TableKey, done: int, total: int) -> None:
            if key not in bars:
                bars[key] = shown.add_task(str(key), total=total)
            shown.update(bars[key], completed=done)

        yield told


def _lake_and_tables(app: App, words: tuple[str, ...]) -> tuple[str, tuple[str, ...] | None]:
    url, tables = lake_and_rest(app, words, "[LAKE] [TABLE...]")
    return url, tables or None


def _show(found: Optimized, *, dry_run: bool, as_json: bool) -> None:
    """What became of each table; the first error comes last, and says how it ended."""
    if as_json:
        print_json({"dry_run": dry_run, "tables": [_table_json(each) for each in found.tables]})
    elif found.tables:
        rows = [(each.key, each.end, _files(each), ", ".join(each.statistics), each.why) for each in found.tables]
        print_table(("table", "end", "files", "statistics", "why"), rows)
    else:
        click.echo("there are no tables")
    if found.errors:
        raise found.errors[0]


def _files(outcome: TableOutcome) -> str:
    if outcome.end not in (End.PUBLISHED, End.PLANNED):
        return ""
    return f"{outcome.files_before} -> {outcome.files_after}"


def _table_json(outcome: TableOutcome) -> dict[str, object]:
    return {
        "table": str(outcome.key),
        "end": str(outcome.end),
        "files_before": outcome.files_before,
        "files_after": outcome.files_after,
        "bytes_before": outcome.bytes_before,
        "bytes_after": outcome.bytes_after,
        "files_with_deletes": outcome.files_with_deletes,
        "statistics": list(outcome.statistics),
        "rebases": outcome.rebases,
        "job": outcome.job,
        "commit": outcome.commit.hash if outcome.commit else None,
        "why": outcome.why,
        "error": outcome.error.as_json() if outcome.error else None,
    }
