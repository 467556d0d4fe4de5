"""`headwater query`: one SELECT over a lake as it stands, or stood, at one commit."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import click
import pyarrow as pa
import pyarrow.csv

from headwater.app import App
from headwater.cli.lakes import at_options, split, words_and
from headwater.cli.output import json_option, print_table

# What a terminal is shown of an answer; files and pipes get all of it by --json or --csv.
_SHOWN_ROWS = 1000


@click.command()
@words_and("SQL")
@at_options
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header.")
@click.option(
    "--limit", type=click.IntRange(0), default=_SHOWN_ROWS, show_default=True, help="Rows of the table shown."
)
@json_option
@click.pass_obj
def query(
    app: App, words: tuple[str, ...], branch: str, at: str | None, as_csv: bool, limit: int, as_json: bool
) -> None:
    """Answer one SELECT over all tables at one commit; --json prints one object per row and line."""
    url, (sql,) = split(app, words, "SQL")
    lake = app.open_lake(url)
    with lake.stream(sql, branch=branch, at=at) as reader:
        if as_json:
            for row in _rows(reader):
                click.echo(json.dumps(dict(zip(reader.schema.names, row, strict=True)), default=_plain))
        elif as_csv:
            with pa.csv.CSVWriter(sys.stdout.buffer, reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
        else:
            _print(reader, limit)


def _print(reader: pa.RecordBatchReader, limit: int) -> None:
    if reader.schema.names == ["explain_key", "explain_value"]:
        for _, plan in _rows(reader):
            click.echo(str(plan))
        return
    shown: list[tuple[str, ...]] = []
    more = False
    for row in _rows(reader):
        if len(shown) == limit:
            more = True
            break
        shown.append(tuple("NULL" if value is None else str(value) for value in row))
    print_table(reader.schema.names, shown)
    count = "1 row" if len(shown) == 1 else f"{len(shown)} rows"
    click.echo(f"({count}{', and more: raise --limit, or use --json or --csv' if more else ''})", err=True)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[object, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _plain(value: object) -> object:
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID() | timedelta():
            return str(value)
        case bytes():
            return value.hex()
        case _:
            raise TypeError(type(value).__name__)
