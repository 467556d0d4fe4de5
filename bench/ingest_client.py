"""Nodes in processes of their own, and their feeder, which splits rows by virtual node and streams them as requests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.ingest_rows import SCHEMA, Batch, loaded
from headwater.app import App
from headwater.ingest.client import NodeClient, translated
from headwater.ingest.keys import encode
from headwater.ingest.service.ipc import bytes_of
from headwater.ingest.topology import Topology
from headwater.kernel import settings
from headwater.kernel.errors import UnavailableError
from headwater.rpc.ingest.v1 import ingest_pb2 as pb

VIRTUAL_NODES = 2  # as many as cores
TIMEOUT_SECONDS = 600.0
BEGUN_AT_ONCE = 50
_TICKS = os.sysconf("SC_CLK_TCK")


class Fed:
    """Nodes that answer, with the table `t`, and a feeder's way to them. `client` is of the one that keeps the time."""

    def __init__(self, processes: Sequence[subprocess.Popen[str]], topology: Topology) -> None:
        self._processes = processes
        self.topology = topology
        self.clients = [NodeClient(each.address, timeout_seconds=TIMEOUT_SECONDS) for each in topology.nodes]
        self.client = self.clients[0]
        self.anonymous_bytes = 0
        """The most memory that it was seen with and that no file stands behind."""

    def begin(self, count: int) -> Sequence[pb.BeginTransactionResponse]:
        """Begin so many transactions of the source."""
        begun = self.client.call(
            self.client.time.BeginTransactionBatch, pb.BeginTransactionBatchRequest(count=count)
        ).transactions
        found: Sequence[pb.BeginTransactionResponse] = begun
        return found

    def message(self, batch: Batch, timestamp: int, node: int = 0) -> pb.UpdateRecordRequest:
        """A batch as a feeder sends it to a node."""
        return self._message(self.updates(batch, node), timestamp)

    def updates(self, batch: Batch, node: int = 0) -> list[pb.TableUpdate]:
        """Keys that were there end, and all rows are inserted; for each virtual node of a node."""
        homes = self.topology.virtual_nodes_of(encode(batch.rows, ("id",)))
        keys = batch.rows.select(["id"])
        updates = []
        for home in self.topology.nodes[node].virtual_nodes:
            here = homes == home
            if here.any():
                deletes = keys.filter(pa.array(here & batch.is_known))
                updates.append(
                    pb.TableUpdate(
                        table="t",
                        virtual_node=home,
                        deletes=bytes_of(deletes) if deletes.num_rows else b"",
                        inserts=bytes_of(batch.rows.filter(pa.array(here))),
                    )
                )
        return updates

    def _message(self, updates: Sequence[pb.TableUpdate], timestamp: int) -> pb.UpdateRecordRequest:
        for each in updates:
            each.key_timestamp = timestamp
        return pb.UpdateRecordRequest(timestamp=timestamp, updates=updates, topology_hash=self.topology.hash)

    def feed(self, batches: Sequence[Batch]) -> float:
        """Seconds from the first row in memory to the last commit; each batch is one request and one transaction."""
        started = time.perf_counter()
        begun = self.begin(len(batches))
        commits: list[Any] = []
        while (done := len(commits)) < len(batches):
            try:
                for each in self._answered(batches[done:], begun[done:]):
                    request = pb.CommitTransactionRequest(transaction_id=each.transaction_id)
                    commits.append(self.client.time.CommitTransaction.future(request, timeout=TIMEOUT_SECONDS))
            except UnavailableError:  # the buffer is full: what was not answered is sent again
                time.sleep(0.05)
        with translated(self.client.address):
            for commit in commits:
                commit.result()
        return time.perf_counter() - started

    def _answered(
        self, batches: Sequence[Batch], begun: Sequence[pb.BeginTransactionResponse]
    ) -> Iterator[pb.BeginTransactionResponse]:
        """Sends requests while answers come; gives each transaction whose requests are done, by all nodes."""

        def requests(node: int) -> Iterator[pb.UpdateRecordRequest]:
            return (self.message(batch, each.timestamp, node) for batch, each in zip(batches, begun, strict=True))

        with translated(self.client.address):
            answers = [
                client.node.StreamUpdateRecord(requests(number), timeout=TIMEOUT_SECONDS)
                for number, client in enumerate(self.clients)
            ]
            for each, *_ in zip(begun, *answers, strict=True):
                yield each

    def paced(self, encoded: Sequence[Sequence[pb.TableUpdate]], due: Sequence[float]) -> Iterator[Any]:
        """Sends what `updates` made of each batch when it is due, all in one stream.

        Gives the commit of each, which is under way.
        """
        begun: list[pb.BeginTransactionResponse] = []

        def requests() -> Iterator[pb.UpdateRecordRequest]:
            for number, (updates, at) in enumerate(zip(encoded, due, strict=True)):
                if number == len(begun):
                    begun.extend(self.begin(min(BEGUN_AT_ONCE, len(encoded) - number)))
                time.sleep(max(0.0, at - time.perf_counter()))
                yield self._message(updates, begun[number].timestamp)

        with translated(self.client.address):
            for number, _ in enumerate(self.client.node.StreamUpdateRecord(requests(), timeout=TIMEOUT_SECONDS)):
                request = pb.CommitTransactionRequest(transaction_id=begun[number].transaction_id)
                yield self.client.time.CommitTransaction.future(request, timeout=TIMEOUT_SECONDS)

    def load(self, keys: int) -> float:
        """Seconds for all keys, from nothing."""
        seconds = 0.0
        rows = loaded(keys)
        while chunk := [Batch(each, np.zeros(len(each), bool)) for each in islice(rows, 10)]:
            seconds += self.feed(chunk)
            self.look()
        return seconds

    def read_timestamp(self) -> int:
        """The newest that is complete."""
        marks = self.client.call(self.client.time.GetWatermarks, pb.GetWatermarksRequest())
        return int(marks.read_timestamp)

    def totals(self) -> tuple[int, float]:
        """How many rows there are, and the sum of their values."""
        at = self.read_timestamp()
        parts = [client.scan("t", at, columns=["v"]).read_all().column("v").to_numpy() for client in self.clients]
        return sum(map(len, parts)), float(sum(map(np.sum, parts)))

    def look(self) -> int:
        """Their memory that no file stands behind, now."""
        texts = [Path(f"/proc/{each.pid}/status").read_text() for each in self._processes]
        lines = [line for text in texts for line in text.splitlines() if line.startswith("RssAnon")]
        found = sum(int(line.split()[1]) * 1024 for line in lines)
        self.anonymous_bytes = max(self.anonymous_bytes, found)
        return found

    def processor_seconds(self) -> float:
        """What the nodes have used of processors."""
        return sum(processor_seconds(each.pid) for each in self._processes)


def processor_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def configured(folder: Path, nodes: int = 1, **buffer: float) -> tuple[list[Path], Path]:
    """A new lake with the empty table `t`, and the files of nodes of it: their own, and the topology."""
    folder.mkdir(parents=True)
    lake = App(settings.load(environ={})).init_lake(str(folder / "lake"))
    lake.create_table("t", SCHEMA, actor="bench", primary_key=["id"], format_version=3)
    names = [f"node{number}" for number in range(nodes)]
    texts = [f"virtual_nodes = {VIRTUAL_NODES}\n"]
    for number, (name, port) in enumerate(zip(names, _free_ports(nodes), strict=True)):
        homes = list(range(number, VIRTUAL_NODES, nodes))
        texts.append(f'[[nodes]]\nname = "{name}"\nhost = "127.0.0.1"\nport = {port}\nvirtual_nodes = {homes}\n')
        (folder / f"{name}.toml").write_text(
            f'name = "{name}"\nlake = "{folder / "lake"}"\ntopology = "topology.toml"\ndirectory = "{name}"\n'
            'tables = ["t"]\n[buffer]\n' + "".join(f"{key} = {value}\n" for key, value in buffer.items())
        )
    (folder / "topology.toml").write_text("".join(texts))
    return [folder / f"{name}.toml" for name in names], folder / "topology.toml"


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


@contextmanager
def fed_node(folder: Path, nodes: int = 1, **buffer: float) -> Iterator[Fed]:
    """Nodes in a new lake in the folder, until the block ends; the first of them keeps the time."""
    configs, topology = configured(folder, nodes, **buffer)
    with ExitStack() as stack:
        processes = list[subprocess.Popen[str]]()
        for config in configs:
            processes.append(stack.enter_context(_running(config)))
            fed = Fed(processes, Topology.load(topology))
            for client in fed.clients:
                stack.enter_context(client)
            _wait_for_time(fed)
        yield fed


@contextmanager
def _running(config: Path) -> Iterator[subprocess.Popen[str]]:
    file = config.with_suffix(".log")
    with file.open("w") as log:
        command = [sys.executable, "-m", "bench.ingest_node", str(config)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "READY":
            raise RuntimeError(f"the node did not start: {file.read_text()[-2000:]}")
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_time(fed: Fed) -> None:
    """Somebody must keep the time before anything can begin."""
    deadline = time.monotonic() + 30
    while True:
        try:
            fed.read_timestamp()
        except UnavailableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


@contextmanager
def watched(fed: Fed, every_seconds: float = 0.25) -> Iterator[None]:
    """Look at the node's memory again and again while the block lasts."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every_seconds):
            fed.look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
