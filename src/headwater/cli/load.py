"""`headwater load`: bring files into a table."""

from __future__ import annotations

import click

from headwater.app import App
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.cli.lakes import lake_and_rest, words_and, write_region_option
from headwater.cli.output import counted, json_option, print_json
from headwater.kernel.errors import UsageError
from headwater.publish.load.model import Format, Mode

_SHAPE = "[LAKE] TABLE FILE..."


@click.command()
@words_and("TABLE FILE...")
@click.option("--mode", type=click.Choice(list(map(str, Mode))), default=str(Mode.APPEND), show_default=True)
@click.option("--on", help="Columns by which rows are merged, with commas; the primary key by default.")
@click.option("--format", "file_format", type=click.Choice(list(map(str, Format))), help="By the suffix by default.")
@click.option("--branch", default=DEFAULT_BRANCH, show_default=True, help="The branch to change.")
@click.option("--actor", help="Who loads; the user's name by default.")
@click.option("--message", help="Why, for the log.")
@write_region_option
@json_option
@click.pass_obj
def load(
    app: App,
    words: tuple[str, ...],
    mode: str,
    on: str | None,
    file_format: str | None,
    branch: str,
    actor: str | None,
    message: str | None,
    region: str | None,
    as_json: bool,
) -> None:
    """Load Parquet, CSV, NDJSON or Arrow files into a table as one commit: append, merge by key, or overwrite."""
    url, table, files = _lake_table_and_files(app, words)
    loaded = app.open_lake(url, region=region).load(
        table,
        files,
        mode,
        branch=branch,
        actor=actor,
        message=message,
        on=[each.strip() for each in on.split(",")] if on is not None else None,
        format=file_format,
    )
    commit = loaded.commit.hash if loaded.commit else None
    if as_json:
        print_json({"rows": loaded.rows, "updated": loaded.updated, "files": loaded.files, "commit": commit})
        return
    updated = f", {loaded.updated} of them in the place of others" if loaded.updated else ""
    click.echo(f"{counted(loaded.rows, 'row')} in {counted(loaded.files, 'data file')}{updated}")
    click.echo(f"committed {commit[:12]}" if commit else "nothing changed, so nothing was committed")


def _lake_table_and_files(app: App, words: tuple[str, ...]) -> tuple[str, str, tuple[str, ...]]:
    url, rest = lake_and_rest(app, words, _SHAPE)
    if len(rest) < 2:
        missing = "the table and its files are missing" if not rest else "a file is missing, or the lake is"
        raise UsageError(
            missing, hint=f"give {_SHAPE}; the lake can be set as `lake` in headwater.toml or by HEADWATER_LAKE"
        )
    return url, rest[0], rest[1:]
