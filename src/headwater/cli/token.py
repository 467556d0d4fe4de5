"""`headwater token`: who may use the server of a lake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click

from headwater.access import Role, Token, Tokens
from headwater.app import App
from headwater.cli.lakes import split, words, words_and
from headwater.cli.output import json_option, print_json, print_table


@click.group()
def token() -> None:
    """Make, list and revoke the tokens of a lake's server."""


@token.command("create")
@words_and("NAME")
@click.option("--role", type=click.Choice(list(map(str, Role))), default=str(Role.READER), show_default=True)
@json_option
@click.pass_obj
def create_token(app: App, words: tuple[str, ...], role: str, as_json: bool) -> None:
    """Make a token and print it, this once. NAME will be the actor of its commits."""
    url, (name,) = split(app, words, "NAME")
    with _tokens(app, url) as tokens:
        made, text = tokens.create(name, Role(role))
    if as_json:
        print_json({**asdict(made), "token": text})
    else:
        click.echo(text)
        click.echo(f"the token of {name}, a {role}; it is not shown again", err=True)


@token.command("revoke")
@words_and("NAME")
@json_option
@click.pass_obj
def revoke_token(app: App, words: tuple[str, ...], as_json: bool) -> None:
    """Revoke the token of this name or id; it is refused from now on."""
    url, (name,) = split(app, words, "NAME")
    with _tokens(app, url) as tokens:
        revoked = tokens.revoke(name)
    if as_json:
        print_json(asdict(revoked))
    else:
        click.echo(f"revoked {revoked.name}")


@token.command("list")
@words
@json_option
@click.pass_obj
def list_tokens(app: App, words: tuple[str, ...], as_json: bool) -> None:
    """List the tokens that there are and were; what they spell is stored nowhere."""
    url, _ = split(app, words)
    with _tokens(app, url) as tokens:
        found = tokens.list()
    if as_json:
        print_json([asdict(each) for each in found])
    elif found:
        print_table(("name", "role", "id", "created", "revoked"), [_row(each) for each in found])
    else:
        click.echo("there are none")


@contextmanager
def _tokens(app: App, url: str) -> Iterator[Tokens]:
    app.open_lake(url, read_only=True)  # what is no lake gets no tokens
    with app.open_database(url) as database:
        yield Tokens(database, app.randomness)


def _row(each: Token) -> tuple[object, ...]:
    revoked = each.revoked_at.isoformat(timespec="seconds") if each.revoked_at else "-"
    return each.name, each.role, each.id, each.created_at.isoformat(timespec="seconds"), revoked
