"""How commands take a lake: named first, or from the settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from headwater.app import App, location_of
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.kernel.errors import UsageError
from headwater.lake import Lake
from headwater.storage.errors import ForbiddenError, MissingCapabilityError

F = TypeVar("F", bound=Callable[..., object])


def words(command: F) -> F:
    """Adds the positional words: the lake, which may be left out, and what else the command takes."""
    return click.argument("words", nargs=-1, metavar="[LAKE]")(command)


def words_and(metavar: str) -> Callable[[F], F]:
    """The same for a command that takes more than the lake."""
    return click.argument("words", nargs=-1, metavar=f"[LAKE] {metavar}")


def at_options(command: F) -> F:
    """Adds `--branch` and `--at`."""
    command = click.option(
        "--at", metavar="WHEN", help="A hash or its beginning, a tag, or a moment like 2026-11-15T09:30Z."
    )(command)
    return click.option("--branch", default=DEFAULT_BRANCH, show_default=True, help="The branch to look at.")(command)


def write_region_option(command: F) -> F:
    """Adds `--region` to a command that writes."""
    told = "Write in this region: its files go there; `region` of the settings by default."
    return click.option("--region", metavar="R", help=told)(command)


def split(app: App, words: tuple[str, ...], *names: str) -> tuple[str, tuple[str, ...]]:
    """The lake's URL and the other words; as many as there are names."""
    if len(words) == len(names) + 1:
        return words[0], words[1:]
    if len(words) == len(names) and app.settings.lake is not None:
        return app.settings.lake, words
    shape = " ".join(["[LAKE]", *names])
    if len(words) == len(names):
        way_out = f"give {shape}; the lake can be set as `lake` in headwater.toml or by HEADWATER_LAKE"
        raise UsageError(
            "no lake is named, or something else is missing" if names else "no lake is named", hint=way_out
        )
    raise UsageError(f"{len(words)} words were given", hint=f"give {shape}; quote what has spaces")


def lake_and_rest(app: App, words: tuple[str, ...], shape: str) -> tuple[str, tuple[str, ...]]:
    """The same where how many words follow is not fixed: the first is the lake, unless the settings name one.

    They do, and it is taken for the lake all the same, if it is one, or can be nothing else.
    """
    if app.settings.lake is not None and not (words and _is_lake(app, words[0])):
        return app.settings.lake, words
    if not words:
        way_out = f"give {shape}; the lake can be set as `lake` in headwater.toml or by HEADWATER_LAKE"
        raise UsageError("no lake is named", hint=way_out)
    return words[0], words[1:]


def _is_lake(app: App, word: str) -> bool:
    """Whether the word names a lake. Names of tables have no slash."""
    if "/" in word:
        return True
    around = app.lake_around(word)
    return around is not None and location_of(around) == location_of(word)


def open_to_read(app: App, url: str) -> Lake:
    """The lake, opened for reading only."""
    return app.open_lake(url, read_only=True)


def open_to_ask(app: App, url: str) -> Lake:
    """The lake, opened for a query, which writes nothing but a pin on what it reads.

    Who may not write reads all the same, without a pin.
    """
    try:
        return app.open_lake(url, sweep=False)
    except (ForbiddenError, MissingCapabilityError):
        return open_to_read(app, url)
