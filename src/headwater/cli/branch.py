"""`headwater branch|tag`: make, list and delete names for commits, and merge one branch into another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from headwater.app import App
from headwater.catalog.model import Ref
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.cli.lakes import open_to_read, split, words, words_and, write_region_option
from headwater.cli.output import json_option, print_json, print_table
from headwater.kernel.settings import user_name

_at = click.option(
    "--at",
    metavar="WHEN",
    help=f"A hash, tag, branch, or moment like 2026-11-15T09:30Z; the head of {DEFAULT_BRANCH} by default.",
)


@click.group()
def branch() -> None:
    """Make, list, delete and merge branches."""


@branch.command("list")
@words
@json_option
@click.pass_obj
def list_branches(app: App, words: tuple[str, ...], as_json: bool) -> None:
    """List the branches of a lake."""
    url, _ = split(app, words)
    _print_refs(open_to_read(app, url).branches(), as_json=as_json)


@branch.command("create")
@words_and("NAME")
@_at
@json_option
@click.pass_obj
def create_branch(app: App, words: tuple[str, ...], at: str | None, as_json: bool) -> None:
    """Make a branch; it begins with everything that is at the commit, and nothing is copied."""
    url, (name,) = split(app, words, "NAME")
    _print_made(app.open_lake(url).create_branch(name, at), as_json=as_json)


@branch.command("delete")
@words_and("NAME")
@click.option("--expected", metavar="HASH", help="Only while the branch is at this commit.")
@json_option
@click.pass_obj
def delete_branch(app: App, words: tuple[str, ...], expected: str | None, as_json: bool) -> None:
    """Delete a branch; what was merged elsewhere stays there."""
    url, (name,) = split(app, words, "NAME")
    app.open_lake(url).delete_branch(name, expected=expected)
    _print_deleted(name, as_json=as_json)


@branch.command("merge")
@words_and("SOURCE")
@click.option(
    "--into", "--branch", "into", default=DEFAULT_BRANCH, show_default=True, help="The branch to bring it into."
)
@click.option("--actor", help="Who merges; the user's name by default.")
@click.option("--message", help="Why, for the log.")
@write_region_option
@json_option
@click.pass_obj
def merge(
    app: App,
    words: tuple[str, ...],
    into: str,
    actor: str | None,
    message: str | None,
    region: str | None,
    as_json: bool,
) -> None:
    """Bring what changed on SOURCE into a branch, as one commit with two parents, or not at all.

    A table that only one side changed is taken as it is. One that both changed is combined row by row by its primary
    key. What cannot be combined is named, all of it at once, with exit code 3; nothing is changed then.
    """
    url, (source,) = split(app, words, "SOURCE")
    merged = app.open_lake(url, region=region).merge(source, into, actor=actor or user_name(), message=message)
    commit = merged.commit
    if as_json:
        print_json({"commit": commit.hash if commit else None, "tables": [str(each) for each in merged.tables]})
    elif commit is None:
        click.echo(f"{into} has everything of {source} already, so nothing was committed")
    else:
        click.echo(f"committed {commit.hash[:12]}")
        for each in merged.tables:
            click.echo(f"  {each}")


@click.group()
def tag() -> None:
    """Make, list and delete tags: names that stay at one commit, and keep it."""


@tag.command("list")
@words
@json_option
@click.pass_obj
def list_tags(app: App, words: tuple[str, ...], as_json: bool) -> None:
    """List the tags of a lake."""
    url, _ = split(app, words)
    _print_refs(open_to_read(app, url).tags(), as_json=as_json)


@tag.command("create")
@words_and("NAME")
@_at
@json_option
@click.pass_obj
def create_tag(app: App, words: tuple[str, ...], at: str | None, as_json: bool) -> None:
    """Give a commit a name."""
    url, (name,) = split(app, words, "NAME")
    _print_made(app.open_lake(url).create_tag(name, at), as_json=as_json)


@tag.command("delete")
@words_and("NAME")
@json_option
@click.pass_obj
def delete_tag(app: App, words: tuple[str, ...], as_json: bool) -> None:
    """Delete a tag; its commit stays as long as history is kept."""
    url, (name,) = split(app, words, "NAME")
    app.open_lake(url).delete_tag(name)
    _print_deleted(name, as_json=as_json)


def _print_refs(refs: Sequence[Ref], *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(each) for each in refs])
    elif refs:
        print_table(("name", "hash"), [(each.name, each.hash) for each in refs])
    else:
        click.echo("there are none")


def _print_made(ref: Ref, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(ref))
    else:
        click.echo(f"{ref.name} is at {ref.hash[:12]}")


def _print_deleted(name: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"deleted": name})
    else:
        click.echo(f"deleted {name}")
