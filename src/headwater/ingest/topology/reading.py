"""The topology file, read and checked.

    virtual_nodes = 64

    [[nodes]]
    name = "one"
    host = "10.0.0.1"
    port = 7070
    virtual_nodes = ["0-31"]       # numbers, and ranges with both ends

Every virtual node has exactly one owner. Nothing else may stand in the file, so that a misspelt word is noticed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from ipaddress import IPv6Address
from itertools import pairwise
from typing import Any

from headwater.ingest.topology.model import Node, TopologyError

LARGEST_COUNT = 65_536
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9.:_-]{1,253}")
_NODE_WORDS = ("name", "host", "port", "virtual_nodes")
_WORDS = ("virtual_nodes", "nodes")


class Reader:
    """One reading of one file, which errors name."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, text: str) -> tuple[tuple[Node, ...], int]:
        """The nodes by name, and the number of virtual nodes."""
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # not only TOMLDecodeError: a number may have no end
            raise self._wrong("file", f"is not TOML: {error}", "mend the line that it names") from error
        self._refuse_unknown(content, _WORDS, "file")
        count = self._integer(content, "virtual_nodes", "file", 1, LARGEST_COUNT)
        tables = content.get("nodes")
        if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
            raise self._wrong("nodes", "names no nodes", "describe each in a table [[nodes]]")
        nodes = tuple(self._node(table, f"nodes[{place}]", count) for place, table in enumerate(tables))
        self._refuse_twice(nodes, count)
        return tuple(sorted(nodes, key=lambda node: node.name)), count

    def _node(self, table: dict[str, Any], place: str, count: int) -> Node:
        self._refuse_unknown(table, _NODE_WORDS, place)
        name = self._text(table, "name", place, _NAME)
        host = self._text(table, "host", place, _HOST)
        if ":" in host and not _is_ipv6(host):
            raise self._wrong(f"{place}.host", f"is {host!r}, no IPv6 address", "the port has a line of its own")
        port = self._integer(table, "port", place, 1, 65_535)
        listed = table.get("virtual_nodes")
        if not isinstance(listed, list):
            raise self._wrong(f"{place}.virtual_nodes", "is no list", 'as in ["0-31", 40]')
        numbers = sorted(self._numbers(listed, f"{place}.virtual_nodes", count))
        for before, after in pairwise(numbers):
            if before == after:
                raise self._wrong(f"{place}.virtual_nodes", f"lists {before} twice", "each has one owner")
        return Node(name, host, port, tuple(numbers))

    def _numbers(self, listed: list[Any], place: str, count: int) -> Iterator[int]:
        for index, each in enumerate(listed):
            where = f"{place}[{index}]"
            if isinstance(each, int) and not isinstance(each, bool):
                first = last = each
            elif isinstance(each, str) and (found := _RANGE.fullmatch(each)):
                first, last = int(found[1]), int(found[2])
            else:
                raise self._wrong(where, f"is {each!r}, no virtual node", 'a number, or a range as in "0-31"')
            if not 0 <= first <= last < count:
                raise self._wrong(where, f"is {each!r}, beyond the {count} virtual nodes", f"0 to {count - 1}, upwards")
            yield from range(first, last + 1)

    def _refuse_twice(self, nodes: tuple[Node, ...], count: int) -> None:
        names, addresses, owners = dict[str, int](), dict[str, str](), dict[int, str]()
        for place, node in enumerate(nodes):
            if node.name in names:
                raise self._wrong(f"nodes[{place}].name", f"{node.name!r} is taken", "names are unique")
            names[node.name] = place
            address = node.address.lower()
            if address in addresses:
                taken = f"{node.address} belongs to {addresses[address]!r}, too"
                raise self._wrong(f"nodes[{place}]", taken, "each node has a host and port of its own")
            addresses[address] = node.name
            for number in node.virtual_nodes:
                if number in owners:
                    taken = f"claims {number}, which {owners[number]!r} has"
                    raise self._wrong(f"nodes[{place}].virtual_nodes", taken, "each has one owner")
                owners[number] = node.name
        missing = [number for number in range(count) if number not in owners]
        if missing:
            some = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
            raise self._wrong(
                "nodes", f"leaves {len(missing)} virtual nodes without an owner: {some}", "give them to one"
            )

    def _integer(self, table: dict[str, Any], word: str, place: str, low: int, high: int) -> int:
        value = table.get(word)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            said = "is missing" if value is None else f"is {value!r}"
            raise self._wrong(_under(place, word), said, f"a whole number from {low} to {high}")
        return value

    def _text(self, table: dict[str, Any], word: str, place: str, shape: re.Pattern[str]) -> str:
        value = table.get(word)
        if not isinstance(value, str) or not shape.fullmatch(value):
            said = "is missing" if value is None else f"is {value!r}"
            raise self._wrong(_under(place, word), said, f"a text of the form {shape.pattern}")
        return value

    def _refuse_unknown(self, table: dict[str, Any], words: tuple[str, ...], place: str) -> None:
        for word in table:
            if word not in words:
                raise self._wrong(_under(place, word), "is not known here", f"what may stand here: {', '.join(words)}")

    def _wrong(self, place: str, what: str, hint: str) -> TopologyError:
        return TopologyError(f"{self._path}: {place} {what}", hint=hint, path=self._path, place=place)


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def _under(place: str, word: str) -> str:
    return word if place == "file" else f"{place}.{word}"
