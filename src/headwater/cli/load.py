"""`headwater load`: bring files into a table."""

from __future__ import annotations

import click

from headwater.app import App, location_of
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.cli.lakes import words_and
from headwater.cli.output import json_option, print_json
from headwater.kernel.errors import UsageError
from headwater.publish.load.model import Format, Mode


@click.command()
@words_and("TABLE FILE...")
@click.option("--mode", type=click.Choice(list(map(str, Mode))), default=str(Mode.APPEND), show_default=True)
@click.option("--on", help="Columns by which rows are merged, with commas; the primary key by default.")
@click.option("--format", "file_format", type=click.Choice(list(map(str, Format))), help="By the suffix by default.")
@click.option("--branch", default=DEFAULT_BRANCH, show_default=True, help="The branch to change.")
@click.option("--actor", help="Who loads; the user's name by default.")
@click.option("--message", help="Why, for the log.")
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
    as_json: bool,
) -> None:
    """Load Parquet, CSV, NDJSON or Arrow files into a table as one commit: append, merge by key, or overwrite."""
    url, table, files = _lake_table_and_files(app, words)
    loaded = app.open_lake(url).load(
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
    click.echo(f"{loaded.rows} rows in {loaded.files} data files{updated}")
    click.echo(f"committed {commit[:12]}" if commit else "nothing changed, so nothing was committed")


def _lake_table_and_files(app: App, words: tuple[str, ...]) -> tuple[str, str, tuple[str, ...]]:
    """The first word is the lake, unless the settings name one, and the word is none."""
    if app.settings.lake is not None and len(words) > 1 and not _is_lake(app, words[0]):
        return app.settings.lake, words[0], words[1:]
    if len(words) < 3:
        raise UsageError(
            f"{len(words)} words were given",
            hint="give [LAKE] TABLE FILE...; the lake can be set as `lake` in headwater.toml or by HEADWATER_LAKE",
        )
    return words[0], words[1], words[2:]


def _is_lake(app: App, word: str) -> bool:
    around = app.lake_around(word)
    return around is not None and location_of(around) == location_of(word)
