"""What docs/ingest.md and docs/formats.md say of nodes is what happens: their files, commands, Python and numbers."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel

from headwater.app import App
from headwater.ingest.config import NodeConfig, load_config
from headwater.ingest.files import tables as files_tables
from headwater.ingest.index.main import tables as index_tables
from headwater.ingest.keys import encode, keys_of
from headwater.ingest.keys.hashing import hash_of
from headwater.ingest.service.running import running
from headwater.ingest.timestamps import tables as time_tables
from headwater.ingest.topology import Topology
from headwater.kernel import settings
from headwater.rpc.ingest.v1 import ingest_pb2 as pb
from tests.cli.test_cli import Run, run
from tests.unit.test_ingest_fresh import free_ports

__all__ = ["run"]  # the fixture

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "ingest.md").read_text()
FORMATS = (DOCS / "formats.md").read_text()


def block(language: str, first: str) -> str:
    """The block of code that begins with these words."""
    [found] = re.findall(rf"^```{language}\n({re.escape(first)}.*?)^```$", PAGE, re.M | re.S)
    return str(found)


@pytest.fixture
def ports(run: Run, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The lake and both nodes of the page, READY by the harness, on ports that are free."""
    ports = dict(zip(("7501", "7502"), map(str, free_ports(2)), strict=True))
    (tmp_path / "tables.sql").write_text(block("sql", "-- tables.sql"))
    (tmp_path / "topology.toml").write_text(translated(block("toml", "# topology.toml"), ports))
    node = block("toml", "# one.toml")
    (tmp_path / "one.toml").write_text(node)
    (tmp_path / "two.toml").write_text(node.replace('"one"', '"two"').replace("node-one", "node-two"))
    assert run("init", "my-lake").code == 0
    assert run("schema", "apply", "my-lake", "tables.sql").code == 0
    app = App(settings.load(environ={}))
    with ExitStack() as stack:
        for name in ("one", "two"):
            opened = stack.enter_context(app.open_node(load_config(tmp_path / f"{name}.toml")))
            opened.keeper.turn()
            address = opened.node.topology.node(name).address
            stack.enter_context(running(opened.node, opened.keeper, address, grace_seconds=0.1))
            opened.node.lifecycle.ready_for_tests()
        yield ports


def translated(text: str, ports: dict[str, str]) -> str:
    for said, real in ports.items():
        text = text.replace(said, real)
    return text


def test_the_page_from_top_to_bottom(run: Run, ports: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    exec(block("python", "# feed.py"), {})
    assert capsys.readouterr().out == "10 rows at 100\n"
    told = {}
    for line in translated(block("", "headwater node run"), ports).splitlines():
        name, *words = shlex.split(line, comments=True)
        assert name == "headwater"
        if words[:2] == ["node", "run"]:
            continue  # it runs already
        if words[0] == "node" and "--node" not in words:
            words += ["--node", f"127.0.0.1:{ports['7501']}"]
        result = run(*words, "--json")
        assert result.code == 0, (line, result.err)
        told[words[1] if words[0] == "node" else words[0]] = result.out
    assert set(told) == {"status", "files", "index", "scan", "query"}
    assert list(json.loads(told["query"]).values()) == [20]
    found: dict[str, Any] = {}
    exec(block("python", "# fresh.py"), found)
    assert found["table"].num_rows == 20


def test_every_word_of_a_node_file_is_on_the_page() -> None:
    words = list(NodeConfig.model_fields)
    for name, field in NodeConfig.model_fields.items():
        if isinstance(field.default, BaseModel):
            words.remove(name)
            for inner, setting in type(field.default).model_fields.items():
                default = "the lake's own" if setting.default is None else setting.default
                assert f"| `{name}.{inner}` | {default} |" in PAGE
    for word in words:
        assert re.search(rf"^{word} = ", block("toml", "# one.toml"), re.M), word


def test_every_call_is_on_the_page() -> None:
    for service in pb.DESCRIPTOR.services_by_name.values():
        assert f"service `{service.name}`" in PAGE
        for method in service.methods:
            assert f"`{method.name}`" in PAGE, method.name


@pytest.mark.parametrize("tables", [files_tables, time_tables, index_tables], ids=lambda each: str(each.__name__))
def test_every_column_is_in_the_formats(tables: ModuleType) -> None:
    assert tables.metadata.tables
    for table in tables.metadata.tables.values():
        # A row of a table, or a name with its columns in brackets.
        [said] = re.findall(rf"^\| `{table.name}` \|.*|`{table.name}\([^)]*\)", FORMATS, re.M)
        for column in table.columns:
            is_said = re.search(rf"\b{column.name}\b", said.removeprefix(f"| `{table.name}`"))
            assert is_said or column.name == "id", f"{table.name}.{column.name}"


def test_the_hashes_of_the_page_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (\w+ [^|]*) \| `([0-9a-f]+)` \| (\d+) \| (\d+) \|$", FORMATS, re.M)
    assert len(rows) == 5
    for key, stored, hashed, home in rows:
        columns = {}
        for place, column in enumerate(key.split(", ")):
            kind, value = column.split(" ")
            columns[str(place)] = pa.array([int(value)] if kind == "long" else [value])
        [found] = encode(pa.RecordBatch.from_pydict(columns), tuple(columns)).to_list()
        assert (bytes(found).hex(), str(hash_of(bytes(found)))) == (stored, hashed)
        node = '[[nodes]]\nname = "a"\nhost = "a"\nport = 1\nvirtual_nodes = ["0-15"]\n'
        assert Topology.parse(f"virtual_nodes = 16\n{node}").virtual_nodes_of(keys_of([bytes(found)])) == [int(home)]
