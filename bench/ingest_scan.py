"""A scan of a node's table of which a part is deleted, beside pyarrow reading the same Parquet files whole.

A process of its own holds the node; what is measured inside it is asked for line by line: `scan` (the node's own) and
`read` (pyarrow). Over the wire this process is the client: by gRPC, as clients are served, and by Arrow Flight, which
carries the same batches from the same scan.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import flight

from bench.ingest_client import configured
from bench.ingest_notes import note, show
from bench.ingest_rows import LOADED_TOGETHER, loaded
from bench.measure import Result
from headwater.app import App
from headwater.ingest.apply.model import TableUpdate, UpdateRequest
from headwater.ingest.client import NodeClient
from headwater.ingest.config import load_config
from headwater.ingest.keys import encode
from headwater.ingest.model import Position
from headwater.ingest.node import Node
from headwater.ingest.scan.model import ScanRequest
from headwater.ingest.service.running import running
from headwater.kernel import settings

ROWS, DELETED_SHARE = 10_000_000, 0.05
ROUNDS, WARMING = 7, 1
ANY_TIME = 1 << 40


def scans(rows: int = ROWS) -> list[Result]:
    """At least 0.35 of pyarrow over the wire, and 0.6 in process."""
    with (
        tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder,
        _holder(Path(folder) / "node", rows) as holder,
        NodeClient(holder.address, timeout_seconds=600) as client,
        flight.connect(f"grpc://127.0.0.1:{holder.flight_port}") as flown,
    ):
        ways: dict[str, Callable[[], float]] = {
            "wire": lambda: _drained(client.scan("t", ANY_TIME), holder.left),
            "in process": lambda: holder.ask("scan"),
            "flight": lambda: _drained(flown.do_get(flight.Ticket(b"t")).to_reader(), holder.left),
            "pyarrow": lambda: holder.ask("read"),
        }
        rounds = [{name: way() for name, way in ways.items()} for _ in range(WARMING + ROUNDS)][WARMING:]
    seconds = {name: statistics.median(each[name] for each in rounds) for name in ways}
    ratios = {name: statistics.median(each["pyarrow"] / each[name] for each in rounds) for name in ways}
    over = statistics.median(each["wire"] / each["flight"] for each in rounds)
    note(f"Arrow Flight of the same batches: {seconds['flight']:.2f} s, {over:.2f} times as fast as gRPC")
    rate = {name: rows / each for name, each in seconds.items()}
    return [
        Result("ingest-scan-wire", rate["wire"], rate["pyarrow"], "rows/s", ratios["wire"], 0.35),
        Result("ingest-scan-in-process", rate["in process"], rate["pyarrow"], "rows/s", ratios["in process"], 0.6),
    ]


def _drained(batches: Iterable[pa.RecordBatch], wanted: int) -> float:
    """Seconds until all rows have come."""
    started = time.perf_counter()
    count = sum(each.num_rows for each in batches)
    seconds = time.perf_counter() - started
    assert count == wanted, (count, wanted)
    return seconds


class Holder:
    """The process that holds the node."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address, port, left = self.said().split()
        self.flight_port, self.left = int(port), int(left)

    def said(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError("the process that holds the node has ended")
        return line

    def ask(self, what: str) -> float:
        """Seconds of what was asked for."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return float(self.said())


@contextmanager
def _holder(folder: Path, rows: int) -> Iterator[Holder]:
    (config,), _ = configured(folder)
    command = [sys.executable, "-m", "bench.ingest_scan", "hold", str(config), str(rows)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Holder(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


# In the process that holds the node.


class Flown(flight.FlightServerBase):  # type: ignore[misc]
    """The scans of a node over Arrow Flight."""

    def __init__(self, node: Node) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._node = node

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.RecordBatchStream:
        schema, batches = self._node.scan(ScanRequest(ticket.ticket.decode(), ANY_TIME))
        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(schema, batches))


def hold(config_path: Path, rows: int) -> None:
    """Answer the lines of the standard input until it ends."""
    config = load_config(config_path)
    with App(settings.load(environ={})).open_node(config) as opened:
        node, address = opened.node, opened.node.topology.node(config.name).address
        node.lifecycle.ready_for_tests()
        left = _fill(node, rows)
        node.flush()
        files = [str(path) for path in sorted(config_path.parent.glob("lake/**/data/ingest/*.parquet"))]
        names = node.table("t").schema.names
        with running(node, opened.keeper, address), Flown(node) as flown:
            print(address, flown.port, left, flush=True)
            for line in sys.stdin:
                if line.strip() == "scan":
                    print(_drained(node.scan(ScanRequest("t", ANY_TIME))[1], left), flush=True)
                else:
                    print(_drained(ds.dataset(files).to_batches(columns=names), rows), flush=True)


def _fill(node: Node, rows: int) -> int:
    """All rows, then without a part of them; says how many are left."""
    shape = node.table("t")
    gone = np.random.default_rng(7).choice(rows, int(rows * DELETED_SHARE), replace=False)
    deletes = (
        pa.record_batch([pa.array(gone[start : start + LOADED_TOGETHER])], schema=pa.schema([shape.schema.field("id")]))
        for start in range(0, len(gone), LOADED_TOGETHER)
    )
    timestamp = 0
    for part, batches in (("inserts", loaded(rows)), ("deletes", deletes)):
        for batch in batches:
            timestamp += 1
            homes = node.topology.virtual_nodes_of(encode(batch, ("id",)))
            updates = tuple(
                TableUpdate("t", home, timestamp, **{part: batch.filter(pa.array(homes == home))})
                for home in sorted(node.owned)
            )
            node.applier.apply(UpdateRequest(Position(timestamp, 0), updates))
            node.publish_full()
    return rows - len(gone)


if __name__ == "__main__":
    if sys.argv[1:2] == ["hold"]:
        hold(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        show(scans(*map(int, sys.argv[1:])))
