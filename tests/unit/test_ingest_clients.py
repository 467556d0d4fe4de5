"""Many clients at once, on many streams, through gRPC: against a plain dictionary of versions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.coordination import DatabaseCoordination
from headwater.ingest.client import NodeClient
from headwater.ingest.files import FileType
from headwater.ingest.lifecycle import LifecycleState
from headwater.ingest.service.ipc import bytes_of
from headwater.ingest.service.limits import ServiceLimits
from headwater.ingest.service.server import NodeServer
from headwater.ingest.service.time import TimeCalls
from headwater.ingest.timestamps import TimestampService, open_timestamps
from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import RefusedError
from headwater.rpc.ingest.v1 import ingest_pb2 as pb
from tests.unit.ingest_world import IngestWorld, ingest_world

CLIENTS, TURNS, KEYS, STREAMS = 4, 8, 120, 12
TOPOLOGY = f"""
virtual_nodes = {STREAMS}

[[nodes]]
name = "a"
host = "127.0.0.1"
port = 7501
virtual_nodes = ["0-{STREAMS - 1}"]
"""
PARTS = {
    "delete": ("deletes",),
    "insert": ("inserts",),
    "update": ("updates",),
    "replace": ("deletes", "inserts"),
}


class Versions:
    """The oracle: each key with the values that it had, and since when."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[int, dict[int, str | None]] = {}

    def add(self, timestamp: int, changes: dict[int, str | None]) -> None:
        """What a transaction made of keys; `None` ended one."""
        with self._lock:
            for key, value in changes.items():
                self._by_key.setdefault(key, {})[timestamp] = value

    def at(self, timestamp: int) -> dict[int, str]:
        """All keys that have a value at a timestamp."""
        found = {}
        with self._lock:
            for key, values in self._by_key.items():
                known = [each for each in values if each <= timestamp]
                if known and (value := values[max(known)]) is not None:
                    found[key] = value
        return found


class Clients:
    """Writers, each with streams of its own, and readers; all of them know the node by its messages alone."""

    def __init__(self, world: IngestWorld, time: TimestampService, address: str) -> None:
        self.world = world
        self.time = time
        self.address = address
        self.versions = Versions()
        self.reads = 0

    def write(self, number: int, keys: list[int]) -> None:
        """Transactions: begin, some requests, commit. Answers are lost now and then, and some have no effects."""
        chance = Random(number)
        with NodeClient(self.address) as client:
            for turn in range(TURNS):
                begun = client.call(client.time.BeginTransaction, pb.BeginTransactionRequest())
                if chance.random() < 0.1:
                    ended = pb.RollbackTransactionRequest(transaction_id=begun.transaction_id)
                    client.call(client.time.RollbackTransaction, ended)
                    continue
                changes: dict[int, str | None] = {}
                for sequence in range(chance.randint(1, 3)):
                    parts = chosen(chance, keys, f"{number}.{turn}.{sequence}", changes)
                    message = self._message(begun.timestamp, sequence, parts)
                    for _ in range(chance.randint(1, 2)):
                        client.update(message)
                self.versions.add(begun.timestamp, changes)
                for _ in range(chance.randint(1, 2)):
                    complete = pb.CommitTransactionRequest(transaction_id=begun.transaction_id)
                    client.call(client.time.CommitTransaction, complete)

    def _message(self, timestamp: int, sequence: int, parts: dict[str, list[dict[str, Any]]]) -> pb.UpdateRecordRequest:
        updates = []
        for each in self.world.request(timestamp, sequence, **parts).updates:
            batches = {name: batch for name in parts if (batch := getattr(each, name)) is not None}
            update = pb.TableUpdate(table="t", virtual_node=each.virtual_node, key_timestamp=timestamp)
            for name, batch in batches.items():
                setattr(update, name, bytes_of(batch))
            updates.append(update)
        return pb.UpdateRecordRequest(timestamp=timestamp, sequence=sequence, updates=updates)

    def read(self, number: int, over: threading.Event) -> None:
        """Reads at the newest timestamp and at older ones, each held by a transaction."""
        chance, newest, low = Random(100 + number), 0, 0
        with NodeClient(self.address) as client:
            while not over.is_set():
                marks = client.call(client.time.GetWatermarks, pb.GetWatermarksRequest())
                assert (marks.read_timestamp >= newest, marks.low_watermark >= low) == (True, True), "time goes on"
                newest, low = marks.read_timestamp, marks.low_watermark
                wanted = pb.BeginTransactionRequest(
                    read_only=True, timestamp=chance.choice([0, chance.randint(low, newest)])
                )
                try:
                    begun = client.call(client.time.BeginTransaction, wanted)
                except RefusedError:
                    continue  # the low watermark has passed it meanwhile
                self.check(client, begun.timestamp)
                client.call(client.time.KeepAlive, pb.KeepAliveRequest(transaction_ids=[begun.transaction_id]))
                done = pb.CommitTransactionRequest(transaction_id=begun.transaction_id)
                client.call(client.time.CommitTransaction, done)
                self.reads += 1

    def check(self, client: NodeClient, timestamp: int) -> None:
        """A scan gives what the dictionary has, each row once."""
        found = client.scan("t", timestamp).read_all().to_pylist()
        assert len({each["id"] for each in found}) == len(found)
        assert {each["id"]: each["v"] for each in found} == self.versions.at(timestamp), f"at {timestamp}"

    def flush_and_fold(self, over: threading.Event) -> None:
        """What the timer does, without its pauses."""
        while not over.is_set():
            self.world.node.flush()
            self.world.node.fold(self.time.watermarks().safe_gc_timestamp)


def chosen(
    chance: Random, keys: list[int], value: str, changes: dict[int, str | None]
) -> dict[str, list[dict[str, Any]]]:
    """What a request does to some keys; `changes` is what the transaction comes to."""
    parts: dict[str, list[dict[str, Any]]] = {"deletes": [], "inserts": [], "updates": []}
    for key in chance.sample(keys, chance.randint(1, len(keys) // 2)):
        kind = chance.choice(list(PARTS))
        changes[key] = None if kind == "delete" else value
        for part in PARTS[kind]:
            parts[part].append({"id": key} if part == "deletes" else {"id": key, "v": value})
    return parts


@contextmanager
def served(folder: Path) -> Iterator[Clients]:
    """A node that answers, and what its clients share."""
    with ingest_world(folder, block_rows=8) as world:
        coordination = DatabaseCoordination(world.database)
        time = open_timestamps(world.database, coordination, "x", "a:1", clock=SystemClock(), lease_seconds=600)
        server = NodeServer(world.node, TimeCalls(lambda: time), ServiceLimits(piece_bytes=2000))
        port = server.start("127.0.0.1:0")
        try:
            yield Clients(world, time, f"127.0.0.1:{port}")
        finally:
            server.stop(1)
            time.close()


def keys_of_clients(world: IngestWorld) -> list[list[int]]:
    """A stream has one order, so that of two clients each has streams of its own."""
    homes = [world.request(1, inserts=[{"id": key, "v": ""}]).updates[0].virtual_node for key in range(KEYS)]
    assert len(set(homes)) == STREAMS
    return [[key for key in range(KEYS) if homes[key] % CLIENTS == number] for number in range(CLIENTS)]


@pytest.mark.proves("ingest/write")
def test_clients_on_many_streams_against_a_dictionary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.ingest_world.TOPOLOGY", TOPOLOGY)
    with served(tmp_path) as clients, ThreadPoolExecutor(CLIENTS + 4) as pool:
        world, over = clients.world, threading.Event()
        world.node.start()
        beside: list[Future[None]] = [pool.submit(clients.read, number, over) for number in range(2)]
        beside += [pool.submit(clients.flush_and_fold, over) for _ in range(2)]
        try:
            writers = [pool.submit(clients.write, number, keys) for number, keys in enumerate(keys_of_clients(world))]
            for each in writers:
                each.result()
        finally:
            over.set()
        for each in beside:
            each.result()
        world.node.finish()
        marks = clients.time.watermarks()
        with NodeClient(clients.address) as client:
            for timestamp in range(marks.low, marks.high + 1):
                clients.check(client, timestamp)
        assert clients.reads > CLIENTS
        assert world.node.lifecycle.state is LifecycleState.READY
        assert len(world.node.streams()) == STREAMS
        assert world.node.files.get_files_by_type(None, {FileType.TEMPORARY_INGEST}) == (), "all became REGULAR"
        for status in world.node.buffers.all():
            regular = [each.file_id for each in world.node.registry.of(status.stream)]
            assert regular == sorted(regular), "in the order of their blocks"
