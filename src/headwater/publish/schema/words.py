"""The words of a script, each with its place. Expressions within it are handed to sqlglot as they stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from sqlglot.dialects import DuckDB
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from headwater.catalog.model import TableKey
from headwater.catalog.names import DEFAULT_NAMESPACE
from headwater.kernel.errors import UsageError
from headwater.publish.schema.places import Place, SchemaError, located

_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING)


@dataclass(frozen=True)
class Word:
    """A word, sign, number, quoted name or string. `text` is without quotation marks; `end` is behind it."""

    text: str
    kind: TokenType
    start: int
    end: int

    @property
    def is_string(self) -> bool:
        """Whether it is text in single quotation marks."""
        return self.kind is TokenType.STRING

    @property
    def is_plain(self) -> bool:
        """Whether it could be a keyword: it is not quoted."""
        return self.kind not in _QUOTED

    @property
    def is_name(self) -> bool:
        """Whether it can name something."""
        return self.kind is TokenType.IDENTIFIER or (
            self.is_plain and (self.text[:1].isalpha() or self.text[:1] == "_")
        )


def words_of(script: str) -> list[Word]:
    """Every word of the script, comments left out."""
    try:
        tokens = DuckDB().tokenize(script)
    except TokenError as error:
        raise SchemaError(
            f"the script cannot be read: {error}", hint="look for a quotation mark or a comment that is open"
        ) from None
    return [word for token in tokens for word in _split(token, script)]


def _split(token: Token, script: str) -> Iterator[Word]:
    """sqlglot takes `PRIMARY KEY` and the like for one token; here they are the words that they are."""
    if token.token_type in _QUOTED or token.token_type is TokenType.NUMBER:
        yield Word(token.text, token.token_type, token.start, token.end + 1)
        return
    at = token.start
    for part in script[token.start : token.end + 1].split():
        at = script.index(part, at)
        yield Word(part, token.token_type, at, at + len(part))
        at += len(part)


class Cursor:
    """A place in the words of one statement, which the rules of the grammar move on."""

    def __init__(self, script: str, words: list[Word]) -> None:
        self.script = script
        self._words = words
        self._end = words[-1].end
        self._at = 0
        # Ids of fields as they are read: every table gives its columns new ones.
        self.ids = count(1)

    @property
    def is_over(self) -> bool:
        """Whether every word was read."""
        return self._at >= len(self._words)

    def peek(self, ahead: int = 0) -> Word | None:
        """The next word, if there is one."""
        place = self._at + ahead
        return self._words[place] if place < len(self._words) else None

    def sees(self, *words: str) -> bool:
        """Whether these words come next."""
        for ahead, text in enumerate(words):
            word = self.peek(ahead)
            if word is None or not word.is_plain or word.text.upper() != text:
                return False
        return True

    def takes(self, *words: str) -> bool:
        """Step over these words, if they come next."""
        if self.sees(*words):
            self._at += len(words)
            return True
        return False

    def expect(self, *words: str) -> None:
        """Step over these words, which must come next."""
        for text in words:
            if not self.takes(text):
                raise self.error(f"{text} is missing")

    def next(self) -> Word:
        """Step over the next word, whatever it is."""
        word = self.peek()
        if word is None:
            raise self.error("something is missing")
        self._at += 1
        return word

    def name(self, what: str = "a name") -> str:
        """Step over a name."""
        word = self.peek()
        if word is None or not word.is_name:
            is_backtick = word is not None and word.text == "`"
            raise self.error(f"{what} is missing", 'a name is quoted like "this"' if is_backtick else None)
        self._at += 1
        return word.text

    def string(self) -> str:
        """Step over text in single quotation marks."""
        word = self.peek()
        if word is None or not word.is_string:
            raise self.error("text in single quotation marks is missing")
        self._at += 1
        return word.text

    def number(self) -> int:
        """Step over a whole number."""
        word = self.peek()
        if word is None or word.kind is not TokenType.NUMBER or not word.text.isdecimal():
            raise self.error("a whole number is missing")
        self._at += 1
        return int(word.text)

    def path(self) -> tuple[str, ...]:
        """Step over names with dots between them."""
        names = [self.name()]
        while self.takes("."):
            names.append(self.name())
        return tuple(names)

    def key(self) -> TableKey:
        """Step over the name of a table or view; without a namespace it is in `default`."""
        at = self.place
        *namespace, name = self.path()
        return self._valid_key(tuple(namespace) or (DEFAULT_NAMESPACE,), name, at)

    def namespace(self) -> TableKey:
        """Step over the name of a namespace."""
        at = self.place
        *namespace, name = self.path()
        return self._valid_key(tuple(namespace), name, at)

    def _valid_key(self, namespace: tuple[str, ...], name: str, at: Place) -> TableKey:
        try:
            return TableKey(namespace, name)
        except UsageError as error:
            raise located(error, at) from None

    def names(self) -> tuple[str, ...]:
        """Step over names in parentheses."""
        self.expect("(")
        found = [self.name()]
        while self.takes(","):
            found.append(self.name())
        self.expect(")")
        return tuple(found)

    def in_parentheses(self) -> tuple[str, Place]:
        """Step over an expression in parentheses; its text, and where it stands."""
        self.expect("(")
        at, start, depth = self.place, self.start, 0
        while True:
            word = self.next()
            if word.is_plain and word.text in ("(", "[", "{"):
                depth += 1
            elif word.is_plain and word.text in (")", "]", "}"):
                depth -= 1
                if depth < 0:
                    return self.script[start : word.start].strip(), at

    def rest(self) -> tuple[str, Place]:
        """Step over everything to the end of the statement; its text, and where it stands."""
        if self.is_over:
            raise self.error("something is missing")
        at, start = self.place, self.start
        self._at = len(self._words)
        return self.script[start : self._end].strip(), at

    @property
    def start(self) -> int:
        """Where the next word begins in the script; the end of the statement when there is none."""
        word = self.peek()
        return word.start if word is not None else self._end

    @property
    def place(self) -> Place:
        """The line and column of the next word."""
        return place_of(self.script, self.start)

    def error(self, what: str, hint: str | None = None) -> SchemaError:
        """What is wrong with the next word."""
        word, at = self.peek(), self.place
        seen = f"at {word.text!r}" if word is not None else "at the end of the statement"
        return wrong(f"{what}, {seen}", at, hint)


def place_of(script: str, offset: int) -> Place:
    """The line and column of a character."""
    return Place(script.count("\n", 0, offset) + 1, offset - script.rfind("\n", 0, offset))


def wrong(what: str, at: Place, hint: str | None = None) -> SchemaError:
    """The error for something that is wrong at this place."""
    return SchemaError(f"{what} (at {at})", hint=hint, line=at.line, column_number=at.column)
