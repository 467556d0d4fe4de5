"""The topology file: what it means, and what is wrong with it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from headwater.ingest.keys import hash_of, keys_of
from headwater.ingest.topology import Topology, TopologyError
from headwater.kernel.errors import UsageError

GOOD = """
virtual_nodes = 8

[[nodes]]
name = "one"
host = "10.0.0.1"
port = 7070
virtual_nodes = ["0-3", 7]

[[nodes]]
name = "two"
host = "::1"
port = 7071
virtual_nodes = [4, "5-6"]
"""

REORDERED = """
# the same, written by somebody else
nodes = [
    {port = 7071, virtual_nodes = [6, 5, 4], host = "::1", name = "two"},
    {virtual_nodes = [7, "1-3", 0], name = "one", host = "10.0.0.1", port = 7_070},
]
virtual_nodes = 8
"""


class TestMeaning:
    def test_each_virtual_node_has_its_owner(self) -> None:
        topology = Topology.parse(GOOD)
        assert [topology.node_of(number).name for number in range(8)] == [*["one"] * 4, *["two"] * 3, "one"]
        assert topology.node("two").virtual_nodes == (4, 5, 6)
        assert topology.node("two").address == "[::1]:7071"
        assert topology.node("one").address == "10.0.0.1:7070"

    @pytest.mark.parametrize("number", [-1, 8])
    def test_beyond_them_there_is_none(self, number: int) -> None:
        with pytest.raises(UsageError, match=f"no virtual node {number}"):
            Topology.parse(GOOD).node_of(number)

    def test_no_such_node(self) -> None:
        with pytest.raises(UsageError, match="no node 'three'") as caught:
            Topology.parse(GOOD).node("three")
        assert caught.value.hint == "its nodes are one, two"

    def test_keys_find_their_virtual_nodes(self) -> None:
        keys = [b"a", b"b", b"long" * 100]
        assert Topology.parse(GOOD).virtual_nodes_of(keys_of(keys)).tolist() == [hash_of(key) % 8 for key in keys]

    def test_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "topology.toml").write_text(GOOD)
        assert Topology.load(tmp_path / "topology.toml") == Topology.parse(GOOD)

    @pytest.mark.parametrize("content", [None, b"\xff\xfe"])
    def test_no_file(self, tmp_path: Path, content: bytes | None) -> None:
        path = tmp_path / "topology.toml"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(TopologyError, match=r"topology\.toml cannot be read"):
            Topology.load(path)
        with pytest.raises(TopologyError, match="cannot be read"):
            Topology.load(tmp_path / "a\0b")


def test_one_host_in_two_spellings_is_one_address() -> None:
    text = GOOD.replace('"10.0.0.1"', '"Ten"').replace('"::1"\nport = 7071', '"ten"\nport = 7070')
    with pytest.raises(TopologyError, match="ten:7070 belongs to 'one', too"):
        Topology.parse(text)


class TestHash:
    def test_golden(self) -> None:
        """It is in checkpoints: it never changes for the same content."""
        content = (
            '{"nodes":[{"host":"10.0.0.1","name":"one","port":7070,"virtual_nodes":[0,1,2,3,7]},'
            '{"host":"::1","name":"two","port":7071,"virtual_nodes":[4,5,6]}],"virtual_nodes":8}'
        )
        assert Topology.parse(GOOD).hash == hashlib.sha256(content.encode()).hexdigest()

    def test_order_and_comments_do_not_count(self) -> None:
        assert Topology.parse(REORDERED) == Topology.parse(GOOD)
        assert Topology.parse(REORDERED).hash == Topology.parse(GOOD).hash

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ('"one"', '"uno"'),
            ("10.0.0.1", "10.0.0.2"),
            ("7070", "7072"),
            ('["0-3", 7]\n', '["0-3"]\n'),
        ],
    )
    def test_everything_else_counts(self, old: str, new: str) -> None:
        changed = GOOD.replace(old, new)
        if "7]" in old:
            changed = changed.replace('[4, "5-6"]', '[4, "5-7"]')
        assert Topology.parse(changed).hash != Topology.parse(GOOD).hash


@pytest.mark.parametrize(
    ("old", "new", "place", "says"),
    [
        ("virtual_nodes = 8", "virtual_nodes = 0", "virtual_nodes", "is 0"),
        ("virtual_nodes = 8", "virtual_nodes = true", "virtual_nodes", "is True"),
        ("virtual_nodes = 8", "", "virtual_nodes", "is missing"),
        ("virtual_nodes = 8", "virtual_nodes = 9", "nodes", "leaves 1 virtual nodes without an owner: 8"),
        ("virtual_nodes = 8", "virtual_nodes = 7", "nodes[0].virtual_nodes[1]", "beyond the 7 virtual nodes"),
        ("virtual_nodes = 8", "virtual_nodes = 8\nvnodes = 3", "vnodes", "is not known here"),
        ('name = "two"', 'name = "one"', "nodes[1].name", "'one' is taken"),
        ('name = "two"', 'name = "a b"', "nodes[1].name", "is 'a b'"),
        ('name = "two"', "", "nodes[1].name", "is missing"),
        ("port = 7071", "port = 70710", "nodes[1].port", "is 70710"),
        ("port = 7071", 'port = "7071"', "nodes[1].port", "is '7071'"),
        ("port = 7071", "port = 7071\nprot = 1", "nodes[1].prot", "is not known here"),
        ('host = "::1"\nport = 7071', 'host = "10.0.0.1"\nport = 7070', "nodes[1]", "belongs to 'one', too"),
        ('[4, "5-6"]', '[3, 4, "5-6"]', "nodes[1].virtual_nodes", "claims 3, which 'one' has"),
        ('[4, "5-6"]', '[4, 5, "5-6"]', "nodes[1].virtual_nodes", "lists 5 twice"),
        ('[4, "5-6"]', '[4, "6-5"]', "nodes[1].virtual_nodes[1]", "beyond"),
        ('[4, "5-6"]', '[4, "5..6"]', "nodes[1].virtual_nodes[1]", "no virtual node"),
        ('[4, "5-6"]', '"4-6"', "nodes[1].virtual_nodes", "is no list"),
        ("[[nodes]]", "[[node]]", "node", "is not known here"),
        ("virtual_nodes = 8", "virtual_nodes = ", "file", "is not TOML"),
        ("virtual_nodes = 8", "virtual_nodes = " + "9" * 5_000, "file", "is not TOML"),
        ("virtual_nodes = 8", "virtual_nodes = " + "[" * 100_000, "file", "is not TOML"),
        ('host = "::1"', 'host = "ten:7070"', "nodes[1].host", "no IPv6 address"),
    ],
    ids=lambda each: each[:40],
)
def test_what_is_wrong_is_named(old: str, new: str, place: str, says: str) -> None:
    with pytest.raises(TopologyError, match=r"^cluster\.toml: ") as caught:
        Topology.parse(GOOD.replace(old, new), "cluster.toml")
    assert caught.value.fields == {"path": "cluster.toml", "place": place}
    assert says in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("nodes", ["", "nodes = []", "nodes = [1]", "nodes = 3"])
def test_no_nodes(nodes: str) -> None:
    with pytest.raises(TopologyError, match="names no nodes"):
        Topology.parse(f"virtual_nodes = 1\n{nodes}")
