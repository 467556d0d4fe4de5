"""How commands print: JSON with a stable shape for machines, aligned text for people."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import click

_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")

F = TypeVar("F", bound=Callable[..., object])


def json_option(command: F) -> F:
    """Adds `--json` to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON with a stable shape.")(command)


def shown(text: object) -> str:
    """Text as a terminal may show it: what would move its cursor, change its title or hide itself is spelled out."""
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) in _UNSEEN else character
        for character in str(text)
    )


def counted(number: int, what: str) -> str:
    """A number of things: 1 row, 2 rows."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, indent=2, default=_plain))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns under their headings."""
    lines = [[shown(cell) for cell in line] for line in (headings, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(type(value).__name__)
