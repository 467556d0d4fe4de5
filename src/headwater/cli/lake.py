"""`headwater init|tables|commits|refs|show|diff`: a lake and its history, as durable objects tell of them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from itertools import islice

import click

from headwater.app import App
from headwater.catalog.errors import BehindHorizonError, CommitNotFoundError
from headwater.catalog.model import Commit, Content, Difference, TableContent, TableKey, ViewContent, describe
from headwater.catalog.names import DEFAULT_BRANCH, DEFAULT_NAMESPACE, looks_like_hash
from headwater.cli.lakes import at_options, open_to_read, split, words, words_and
from headwater.cli.output import json_option, print_json, print_table, shown
from headwater.cli.tables import describe_table, row_of, table_json
from headwater.kernel.logs import scrub
from headwater.lake import Lake


@click.command()
@words
@json_option
@click.pass_obj
def init(app: App, words: tuple[str, ...], as_json: bool) -> None:
    """Make a folder or prefix a lake; one that is a lake stays as it is."""
    url, _ = split(app, words)
    lake = app.init_lake(url)
    main = lake.catalog.ref(DEFAULT_BRANCH)
    if as_json:
        print_json({"lake": lake.name, "branch": main.name, "hash": main.hash})
    else:
        click.echo(f"{lake.name} is a lake; {main.name} is at {main.hash[:12]}")


@click.command()
@words
@at_options
@json_option
@click.pass_obj
def tables(app: App, words: tuple[str, ...], branch: str, at: str | None, as_json: bool) -> None:
    """List tables and views; one that cannot be read is listed with its error, and the exit code is 1."""
    url, _ = split(app, words)
    lake = open_to_read(app, url)
    listed = list(lake.tables(branch=branch, at=at))
    if as_json:
        print_json([table_json(each) for each in listed])
    elif not listed:
        click.echo("there are no tables")
    else:
        print_table(("table", "kind", "format", "rows", "data files", "snapshot"), [row_of(each) for each in listed])
    broken = [each for each in listed if each.error]
    for each in broken:
        click.echo(f"error: {each.key}: {scrub(str(each.error))}", err=True)
    if broken:
        sys.exit(1)


@click.command()
@words
@at_options
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many commits.")
@click.option("--actor", help="Only commits of this actor.")
@json_option
@click.pass_obj
def commits(
    app: App, words: tuple[str, ...], branch: str, at: str | None, limit: int, actor: str | None, as_json: bool
) -> None:
    """Show the log of a branch, newest first: who changed what, when."""
    url, _ = split(app, words)
    lake = open_to_read(app, url)
    log = lake.catalog.log(lake.resolve(at, branch=branch))
    found = list(islice((each for each in log if actor is None or each.actor == actor), limit))
    if as_json:
        print_json([asdict(each) for each in found])
        return
    if not found:
        click.echo(f"there are no commits of {shown(actor)}")
        return
    print_table(
        ("commit", "time", "actor", "message"),
        [(each.hash[:12], each.committed_at.isoformat(timespec="seconds"), each.actor, _line(each)) for each in found],
    )


@click.command()
@words
@json_option
@click.pass_obj
def refs(app: App, words: tuple[str, ...], as_json: bool) -> None:
    """List branches and tags."""
    url, _ = split(app, words)
    found = open_to_read(app, url).catalog.refs()
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        print_table(("name", "kind", "hash"), [(each.name, each.kind, each.hash) for each in found])


@click.command()
@words_and("TABLE|COMMIT")
@at_options
@json_option
@click.pass_obj
def show(app: App, words: tuple[str, ...], branch: str, at: str | None, as_json: bool) -> None:
    """Show a table (columns, partitions, snapshots) or a commit (what it changed)."""
    url, (what,) = split(app, words, "TABLE|COMMIT")
    lake = open_to_read(app, url)
    if looks_like_hash(what):
        try:
            found = lake.resolve(what, branch=branch)
        except CommitNotFoundError as error:
            raise CommitNotFoundError(
                what, f"no commit has that hash; a table of that name is shown as {DEFAULT_NAMESPACE}.{what}"
            ) from error
        _show_commit(lake, found, as_json=as_json)
        return
    describe_table(lake, TableKey.parse(what), lake.resolve(at, branch=branch), as_json=as_json)


@click.command()
@words_and("FROM TO")
@click.option(
    "--branch", default=DEFAULT_BRANCH, show_default=True, help="Where shortened hashes and moments are looked up."
)
@json_option
@click.pass_obj
def diff(app: App, words: tuple[str, ...], branch: str, as_json: bool) -> None:
    """Show what differs between two commits, branches, tags or moments."""
    url, (old, new) = split(app, words, "FROM", "TO")
    lake = open_to_read(app, url)
    found = lake.catalog.diff(lake.resolve(old, branch=branch), lake.resolve(new, branch=branch))
    if as_json:
        print_json([_difference_json(each) for each in found])
    else:
        _print_differences(found)


def _show_commit(lake: Lake, at_hash: str, *, as_json: bool) -> None:
    commit = lake.catalog.commit_at(at_hash)
    try:
        changes = lake.catalog.diff(commit.parents[0], commit.hash) if commit.parents else ()
    except BehindHorizonError:
        changes = None  # the parent may have been collected
    if as_json:
        print_json(
            {**asdict(commit), "changes": None if changes is None else [_difference_json(each) for each in changes]}
        )
        return
    for name, value in (
        ("commit", commit.hash),
        ("parents", ", ".join(commit.parents) or "-"),
        ("time", commit.committed_at.isoformat()),
        ("actor", commit.actor),
        ("message", commit.message),
    ):
        click.echo(f"{name:10}{shown(value)}")
    for name, value in sorted(commit.properties.items()):
        click.echo(f"  {shown(name)} = {shown(value)}")
    click.echo()
    if changes is None:
        click.echo("what it changed is no longer known: its parent is behind the history horizon")
    else:
        _print_differences(changes)


def _print_differences(found: tuple[Difference, ...]) -> None:
    if not found:
        click.echo("nothing differs")
        return
    print_table(
        ("change", "table", "before", "after"),
        [(_verb(each), each.key, _version(each.before), _version(each.after)) for each in found],
    )


def _verb(difference: Difference) -> str:
    if difference.before is None:
        return "added"
    return "changed" if difference.after is not None else "removed"


def _version(content: Content | None) -> str:
    match content:
        case None:
            return "-"
        case TableContent() | ViewContent():
            return content.metadata_location.rsplit("/", 1)[-1]
        case _:
            return describe(content)


def _difference_json(difference: Difference) -> dict[str, object]:
    return {
        "table": str(difference.key),
        "change": _verb(difference),
        "before": asdict(difference.before) if difference.before else None,
        "after": asdict(difference.after) if difference.after else None,
    }


def _line(commit: Commit) -> str:
    return commit.message.splitlines()[0]
