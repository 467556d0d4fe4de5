"""The tokens of a piece of SQL, by DuckDB's own tokenizer, which counts bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

import duckdb

_END = re.compile(r"\s|--|/\*")
_COMMENT = "comment"


@dataclass(frozen=True)
class Token:
    """One token; `at_byte` is where it begins."""

    at_byte: int
    text: str


def tokens_of(sql: str) -> list[Token]:
    """Every token, comments left out."""
    data = sql.encode()
    starts = [start for start, kind in duckdb.tokenize(sql) if kind.name != _COMMENT]
    pairs = zip(starts, [*starts[1:], len(data)], strict=True)
    return [Token(start, _trimmed(data[start:end].decode(errors="replace"))) for start, end in pairs]


def _trimmed(text: str) -> str:
    """The token without the white space and comments that follow it."""
    if text.startswith(('"', "'")):
        return text[: _closing(text) + 1]
    return _END.split(text, maxsplit=1)[0]


def _closing(text: str) -> int:
    """Where the quotation ends; a doubled quotation mark is part of it."""
    at = 1
    while (at := text.find(text[0], at)) >= 0:
        if text[at + 1 : at + 2] != text[0]:
            return at
        at += 2
    return len(text)
