"""`headwater query`: one SELECT over a lake as it stands, or stood, at one commit."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.csv

from headwater.app import App
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.cli.lakes import at_options, open_to_ask, split, words_and
from headwater.cli.output import counted, json_option, print_table, shown
from headwater.query.output import csv_schema, for_csv, rows_of, to_json, unique

# What a terminal is shown of an answer; files and pipes get all of it by --json or --csv.
_SHOWN_ROWS = 1000


@click.command()
@words_and("SQL")
@at_options
@click.option("--fresh", is_flag=True, help="Read the tables that ingest nodes feed from the nodes, at one timestamp.")
@click.option(
    "--topology", type=click.Path(path_type=Path), help="The nodes' topology file for --fresh; by default the setting."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header.")
@click.option(
    "--limit", type=click.IntRange(0), default=_SHOWN_ROWS, show_default=True, help="Rows of the table shown."
)
@json_option
@click.pass_obj
def query(
    app: App,
    words: tuple[str, ...],
    branch: str,
    at: str | None,
    fresh: bool,
    topology: Path | None,
    as_csv: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Answer one SELECT over all tables at one commit; --json prints one object per row and line.

    Of columns with the same name the second is called NAME_2 in JSON. NaN and the infinities are strings there.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv are two answers: give one of them")
    if fresh and (at is not None or branch != DEFAULT_BRANCH):
        raise click.UsageError(f"--fresh is about now, on {DEFAULT_BRANCH}: leave --at and --branch out")
    if topology is not None and not fresh:
        raise click.UsageError("--topology says where to read what is fresh: add --fresh")
    url, (sql,) = split(app, words, "SQL")
    lake = open_to_ask(app, url)
    with ExitStack() as stack:
        laid_over = stack.enter_context(app.open_fresh(topology)) if fresh else None
        reader = stack.enter_context(lake.stream(sql, branch=branch, at=at, laid_over=laid_over))
        if as_json:
            names = unique(reader.schema.names)
            for row in rows_of(reader):
                click.echo(json.dumps(dict(zip(names, map(to_json, row), strict=True)), allow_nan=False))
        elif as_csv:
            schema = csv_schema(reader.schema)
            with pa.csv.CSVWriter(sys.stdout.buffer, schema) as writer:
                for batch in reader:
                    writer.write_batch(for_csv(batch, schema))
        else:
            _print(reader, limit)


def _print(reader: pa.RecordBatchReader, limit: int) -> None:
    if reader.schema.names == ["explain_key", "explain_value"]:
        for _, plan in rows_of(reader):
            for line in str(plan).splitlines():
                click.echo(shown(line))
        return
    lines: list[tuple[str, ...]] = []
    more = False
    for row in rows_of(reader):
        if len(lines) == limit:
            more = True
            break
        lines.append(tuple("NULL" if value is None else str(value) for value in row))
    print_table(reader.schema.names, lines)
    rest = ", and more: raise --limit, or use --json or --csv" if more else ""
    click.echo(f"({counted(len(lines), 'row')}{rest})", err=True)
