"""`headwater schema apply|show`: change the schema by a script, and see it as one."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headwater.app import App
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.cli.lakes import at_options, lake_and_rest, open_to_read, split, words_and, write_region_option
from headwater.cli.output import json_option, print_json, shown
from headwater.kernel.errors import UsageError
from headwater.kernel.settings import user_name
from headwater.publish.schema.model import Applied, ObjectChange

_STANDARD_INPUT = "-"


@click.group()
def schema() -> None:
    """Change the schema of a lake by a script, or show it as one."""


@schema.command()
@words_and("FILE.sql|-")
@click.option("--branch", default=DEFAULT_BRANCH, show_default=True, help="The branch to change.")
@click.option("--actor", help="Who changes it; the user's name by default.")
@click.option("--message", help="Why, for the log; what changes by default.")
@click.option("--dry-run", is_flag=True, help="Look whether it could be done, say what, and do nothing.")
@write_region_option
@json_option
@click.pass_obj
def apply(
    app: App,
    words: tuple[str, ...],
    branch: str,
    actor: str | None,
    message: str | None,
    dry_run: bool,
    region: str | None,
    as_json: bool,
) -> None:
    """Apply a script of DDL as one commit: all of it lands, or nothing.

    \b
    CREATE TABLE [IF NOT EXISTS] t (c type [NOT NULL] [PRIMARY KEY] [DEFAULT v] [CHECK (..)]
        [REFERENCES p (k) [ON DELETE CASCADE|RESTRICT]] [COMMENT '..'], PRIMARY KEY (..),
        [CONSTRAINT n] FOREIGN KEY (..) REFERENCES p (..), [CONSTRAINT n] CHECK (..),
        CHECK (count(*) OVER (PARTITION BY c) <= 5))
        [PARTITIONED BY (day(c), bucket(16, c), ..)] [TBLPROPERTIES ('format-version' = '3', ..)]
    DROP TABLE [IF EXISTS] t
    ALTER TABLE t RENAME TO u
    ALTER TABLE t ADD|DROP|RENAME COLUMN .., ALTER COLUMN c TYPE ..|SET|DROP NOT NULL|SET|DROP DEFAULT
    ALTER TABLE t ADD|DROP CONSTRAINT .., ADD|DROP PRIMARY KEY
    ALTER TABLE t ADD|DROP|REPLACE PARTITION FIELD .., WRITE ORDERED BY .., SET|UNSET TBLPROPERTIES
    CREATE|DROP NAMESPACE n, CREATE [OR REPLACE] VIEW v AS SELECT .., DROP VIEW v
    COMMENT ON TABLE|COLUMN .. IS '..'

    Types: boolean, int, bigint, float, double, decimal(p, s), date, time, timestamp, timestamptz, timestamp_ns,
    timestamptz_ns, string, uuid, binary, fixed(n), unknown, struct<a: int>, array<int>, map<string, int>.
    """
    url, (file,) = split(app, words, "FILE.sql|-")
    applied = app.open_lake(url, sweep=not dry_run, region=region).apply(
        _script(file), branch=branch, actor=actor or user_name(), message=message, dry_run=dry_run
    )
    if as_json:
        print_json(_json(applied))
        return
    for each in applied.changes:
        click.echo(f"{'would ' if dry_run else ''}{_line(each)}")
    if not applied.changes:
        click.echo("nothing changes, so nothing is committed")
    elif applied.commit is not None:
        click.echo(f"committed {applied.commit.hash[:12]}")


def _script(file: str) -> str:
    try:
        if file == _STANDARD_INPUT:
            return sys.stdin.buffer.read().decode("utf-8-sig")
        return Path(file).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}", hint="name a file, or - for standard input"
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8: {error.reason} at byte {error.start}", file=file) from None


def _line(change: ObjectChange) -> str:
    before = f" (was {change.renamed_from})" if change.renamed_from else ""
    return shown(f"{change.action} {change.kind} {change.key}{before}")


def _json(applied: Applied) -> dict[str, object]:
    return {
        "operation": applied.operation,
        "dry_run": applied.dry_run,
        "commit": applied.commit.hash if applied.commit else None,
        "changes": [
            {
                "action": str(each.action),
                "kind": str(each.kind),
                "name": str(each.key),
                "renamed_from": str(each.renamed_from) if each.renamed_from else None,
                "statements": list(each.statements),
            }
            for each in applied.changes
        ],
    }


@schema.command()
@words_and("[TABLE]")
@at_options
@json_option
@click.pass_obj
def show(app: App, words: tuple[str, ...], branch: str, at: str | None, as_json: bool) -> None:
    """Print the script that makes the schema again: of all tables and views, or of one."""
    url, table = _lake_and_table(app, words)
    script = open_to_read(app, url).schema_script(table, branch=branch, at=at)
    if as_json:
        print_json({"branch": branch, "table": table, "script": script})
    else:
        click.echo(script, nl=False)


def _lake_and_table(app: App, words: tuple[str, ...]) -> tuple[str, str | None]:
    url, tables = lake_and_rest(app, words, "[LAKE] [TABLE]")
    if len(tables) > 1:
        raise UsageError(f"{len(tables)} tables were given", hint="give one, or none for all of them")
    return url, tables[0] if tables else None
