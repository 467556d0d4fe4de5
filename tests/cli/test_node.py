"""`headwater node` and `headwater query --fresh`, as a person or a script meets them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.ingest.client import NodeClient
from headwater.ingest.keys import encode
from headwater.rpc.ingest.v1 import ingest_pb2 as pb
from tests.cli.test_cli import Run, run
from tests.fixtures.lakes import LakeWorld
from tests.unit.test_ingest_fresh import NO_ROWS, SCHEMA, Fed, fed, free_ports, rows

__all__ = ["fed", "run"]  # the fixtures


def key_of(fed: Fed, node: str) -> int:
    """A key that lives on this node."""
    keys = pa.RecordBatch.from_pydict({"id": list(range(64))})
    homes = fed.topology.virtual_nodes_of(encode(keys, ("id",)))
    return next(each for each in range(64) if int(homes[each]) in fed.topology.node(node).virtual_nodes)


def test_status(run: Run, fed: Fed) -> None:
    fed.write(3, inserts=rows(20))
    first, second = (fed.topology.node(name).address for name in ("a", "b"))
    told = run("node", "status", "--node", second, "--json").json()
    assert (told["node"], told["state"], told["failure"], told["tables"]) == ("b", "ready", None, ["t", "u"])
    assert told["topology_hash"] == fed.topology.hash
    assert told["time"] == {
        "holder": first,
        "high_watermark": 4,
        "low_watermark": 0,
        "read_timestamp": 3,
        "safe_gc_timestamp": 0,
        "open_writes": 0,
        "waits_for_transaction": None,
        "waits_for_timestamp": None,
    }
    assert [(each["table"], each["applied_timestamp"]) for each in told["streams"]] == [("t", 3)]
    shown = run("node", "status", "--node", first).out
    assert shown.startswith(f"a is ready\ntime  holder {first}  high_watermark 4")


def test_status_says_what_time_waits_for(run: Run, fed: Fed) -> None:
    """A writer that died leaves its write open: nothing can be read past it, and a person has to know why."""
    fed.write(3, inserts=rows(20))
    address = fed.topology.node("a").address
    with NodeClient(address) as client:
        client.call(client.time.BeginTransaction, pb.BeginTransactionRequest(timestamp=2))
        lost = client.call(client.time.BeginTransaction, pb.BeginTransactionRequest(timestamp=7))
        fed.write(9, inserts=rows(2))
        told = run("node", "status", "--node", address, "--json").json()["time"]
        assert (told["high_watermark"], told["open_writes"]) == (7, 2)
        assert (told["waits_for_transaction"], told["waits_for_timestamp"]) == (lost.transaction_id, 7)
        listed = client.call(client.time.ListOpenWrites, pb.ListOpenWritesRequest()).writes
        assert [each.timestamp for each in listed] == [7, 2], "what holds nothing back comes last"
        assert f"waits_for_transaction {lost.transaction_id}" in run("node", "status", "--node", address).out
        client.call(client.time.RollbackTransaction, pb.RollbackTransactionRequest(transaction_id=lost.transaction_id))
        told = run("node", "status", "--node", address, "--json").json()["time"]
        assert (told["high_watermark"], told["open_writes"], told["waits_for_timestamp"]) == (10, 1, None)


def test_status_where_nobody_keeps_the_time(run: Run, fed: Fed) -> None:
    fed.stops["a"].close()
    gone = run("node", "status", "--node", fed.topology.node("b").address, "--json").json()
    assert gone["state"] == "ready"
    assert gone["time"]["holder"] is None or gone["time"]["holder"] == fed.topology.node("b").address


def test_index(run: Run, fed: Fed) -> None:
    key = key_of(fed, "a")
    here, there = (fed.topology.node(name).address for name in ("a", "b"))
    fed.write(3, inserts=[{"id": key, "v": "x"}])
    fed.write(5, deletes=[{"id": key}])
    told = run("node", "index", "t", str(key), "--node", here, "--json").json()
    assert [(each["timestamp"], each["is_tombstone"]) for each in told["versions"]] == [(5, True), (3, False)]
    assert told["versions"][1]["offset"] == 0
    assert "virtual node" in run("node", "index", "t", str(key), "--node", here).out
    nothing = run("node", "index", "t", "--node", here, "--json", "--", str(key_of(fed, "a")))
    assert nothing.code == 0
    for words, code, says in (
        (("t", "x"), 2, "'x' is no int64 for id"),
        (("t", "1", "2"), 2, "has 1 columns, and 2 texts"),
        (("nope", "1"), 2, "table nope is unknown"),
        (("t", str(key_of(fed, "b"))), 4, f"ask {there}"),
    ):
        failed = run("node", "index", *words, "--node", here)
        assert (failed.code, says in failed.err) == (code, True), failed.err


def test_files_and_scan(run: Run, fed: Fed) -> None:
    fed.write(3, inserts=rows(20))
    here = fed.topology.node("a").address
    assert {each["type"] for each in run("node", "files", "t", "--node", here, "--json").json()["files"]} == {
        "TEMPORARY_INGEST"
    }
    lines = run("node", "scan", "t", "--at", "3", "--node", here, "--json").out.splitlines()
    assert 0 < len(lines) < 20
    assert all(json.loads(line)["v"] == "a" for line in lines)
    short = run("node", "scan", "t", "--at", "3", "--limit", "2", "--node", here)
    assert len(short.out.splitlines()) == 3
    assert "(2 rows, and more" in short.err


@pytest.mark.proves("ingest/fresh")
def test_a_fresh_query(run: Run, fed: Fed) -> None:
    fed.write(3, inserts=rows(20))
    sql = "select count(*)::int n, (select count(*)::int from p) p from t"
    told = run("query", fed.lake.url, "--fresh", "--topology", fed.file, sql, "--json")
    assert (told.code, told.json()) == (0, {"n": 20, "p": 2}), told.err
    assert run("query", fed.lake.url, sql, "--json").json() == {"n": 0, "p": 2}
    Path("headwater.toml").write_text(f'lake = "{fed.lake.url}"\ntopology = "{fed.file}"\n')
    assert run("query", "--fresh", sql, "--json").json() == {"n": 20, "p": 2}


def test_a_fresh_query_that_cannot_be(run: Run, fed: Fed) -> None:
    url, topology = fed.lake.url, ("--topology", fed.file)
    for words, code, says in (
        (("--fresh", "select 1"), 2, "no topology is named"),
        (("--fresh", "--at", "x", *topology, "select 1"), 2, "leave --at and --branch out"),
        (("--fresh", "--branch", "x", *topology, "select 1"), 2, "leave --at and --branch out"),
        ((*topology, "select 1"), 2, "add --fresh"),
        (("--fresh", "--topology", "nope.toml", "select 1"), 2, "nope.toml cannot be read"),
        (("--fresh", *topology, "select * from nope"), 2, "there is no table nope"),
    ):
        failed = run("query", url, *words)
        assert (failed.code, says in failed.err) == (code, True), failed.err
    fed.stops["b"].close()
    failed = run("query", url, "--fresh", *topology, "select * from t")
    assert (failed.code, "node b at" in failed.err) == (5, True), failed.err


def test_no_node_there(run: Run) -> None:
    (port,) = free_ports(1)
    failed = run("node", "status", "--node", f"127.0.0.1:{port}")
    assert (failed.code, "is the node running?" in failed.err) == (5, True)
    for address in ("here", ":1", "host:", "host:0", "host:99999", "host:x", "http://host:1"):
        wrong = run("node", "status", "--node", address)
        assert (wrong.code, "is no address of a node" in wrong.err) == (2, True), wrong.err


def test_a_scan_that_cannot_be(run: Run, fed: Fed) -> None:
    here = fed.topology.node("a").address
    for words, says in (
        (("t", "--at", "-1"), "not in the range"),
        (("t", "--at", "99999999999999999999"), "not in the range"),
        (("nope", "--at", "1"), "table nope is unknown"),
        (("t", "--at", "1", "--column", "x"), "t has no column x"),
        (("t", "--at", "1", "--column", "v", "--column", "v"), "asked for twice"),
    ):
        failed = run("node", "scan", *words, "--node", here)
        assert (failed.code, says in failed.err) == (2, True), failed.err


def test_a_node_is_run_and_ends_with_a_signal(run: Run, lake: LakeWorld, tmp_path: Path) -> None:
    lake.create("t", NO_ROWS, schema=SCHEMA)
    (port,) = free_ports(1)
    topology = tmp_path / "topology.toml"
    topology.write_text(
        f'virtual_nodes = 1\n[[nodes]]\nname = "a"\nhost = "127.0.0.1"\nport = {port}\nvirtual_nodes = [0]\n'
    )
    (tmp_path / "node.toml").write_text(
        f'name = "a"\nlake = "{lake.url}"\ntopology = "topology.toml"\ndirectory = "a"\ntables = ["t"]\n'
    )
    with subprocess.Popen(
        [sys.executable, "-m", "headwater", "node", "run", "--config", "node.toml"],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    ) as process:
        try:
            assert process.stdout is not None
            address = f"127.0.0.1:{port}"
            assert process.stdout.readline() == f"a answers at {address}, and is recovering\n"
            status = run("node", "status", "--node", address, "--json").json()
            assert status["state"] == "recovering"
            refused = run("query", lake.url, "--fresh", "--topology", topology, "select * from t")
            assert (refused.code, "node a is recovering" in refused.err) == (5, True), refused.err
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [('name = "a"\n', "lake"), ("nonsense", "cannot be read"), ("wrong = 1\n", "")],
)
def test_a_node_file_that_is_wrong(run: Run, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "node.toml").write_text(text)
    failed = run("node", "run", "--config", "node.toml")
    assert (failed.code, says in failed.err) == (2, True)
