"""The shape of Avro records, as far as one must know it to find where each value ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias


@dataclass(frozen=True)
class Number:
    """A whole number of any length: int, long, enum."""


@dataclass(frozen=True)
class Fixed:
    """A value of always so many bytes."""

    size_bytes: int


@dataclass(frozen=True)
class Text:
    """A length, and as many bytes: string, bytes."""


@dataclass(frozen=True)
class Choice:
    """A number that says which of these follows."""

    branches: tuple[Kind, ...]


@dataclass(frozen=True)
class Many:
    """Groups of items, each with its count; the last has none."""

    items: Kind


@dataclass(frozen=True)
class Fields:
    """One value after the other, some with an Iceberg field id."""

    fields: tuple[tuple[int | None, Kind], ...]


Kind: TypeAlias = Number | Fixed | Text | Choice | Many | Fields

_PLAIN: Final[Mapping[str, Kind]] = {
    "null": Fixed(0),
    "boolean": Fixed(1),
    "int": Number(),
    "long": Number(),
    "float": Fixed(4),
    "double": Fixed(8),
    "string": Text(),
    "bytes": Text(),
}


def record_of(schema: str) -> Fields:
    """The shape of the records of a file, from the schema in its header; a value that is no record is one field."""
    kind = _Parser().parse(json.loads(schema))
    return kind if isinstance(kind, Fields) else Fields(((None, kind),))


def least_bytes(kind: Kind) -> int:
    """How many bytes the shortest value has."""
    match kind:
        case Fixed(size_bytes):
            return size_bytes
        case Fields(fields):
            return sum(least_bytes(each) for _, each in fields)
        case _:
            return 1


class _Parser:
    """Types may be given by the name of one that was defined before, with or without its namespace."""

    def __init__(self) -> None:
        self._named: dict[str, Kind] = {}

    def parse(self, said: Any) -> Kind:
        if isinstance(said, list):
            return Choice(tuple(self.parse(each) for each in said))
        if isinstance(said, str):
            known = _PLAIN.get(said) or self._named.get(said.rpartition(".")[2])
            if known is None:
                raise ValueError(f"its schema has {said!r}, which is no type")
            return known
        match said["type"]:
            case "record":
                kind: Kind = Fields(tuple((each.get("field-id"), self.parse(each["type"])) for each in said["fields"]))
            case "array":
                return self._many(self.parse(said["items"]))
            case "map":
                return self._many(Fields(((None, Text()), (None, self.parse(said["values"])))))
            case "fixed":
                kind = Fixed(_size(said["size"]))
            case "enum":
                kind = Number()
            case inner:
                return self.parse(inner)
        self._named[said["name"].rpartition(".")[2]] = kind
        return kind

    def _many(self, items: Kind) -> Kind:
        if least_bytes(items) == 0:
            raise ValueError("a list of nothing could be of any length")
        return Many(items)


def _size(said: object) -> int:
    if type(said) is not int or said < 0:
        raise ValueError(f"its schema has a fixed type of {said!r} bytes")
    return said
