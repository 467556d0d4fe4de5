"""Change streams into a node, beside MERGE INTO of the same rows; ten times the keys; and how soon a row is seen.

A batch is one request, one transaction of the source, and one MERGE: nine rows of ten replace a key that is there (they
travel as DELETE and INSERT), one is new. The time of ours begins with rows in memory and ends with the last commit.
The peer gets the first batch of each round, and what either side must hold in the end is counted apart from both.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import pyarrow as pa

from bench.ingest_client import VIRTUAL_NODES, Fed, fed_node, watched
from bench.ingest_notes import note, show
from bench.ingest_rows import Batch, Changes, Expected
from bench.ingest_spark import Merged, spark_table
from bench.measure import Result
from headwater.rpc.ingest.v1 import ingest_pb2 as pb

SMALL, LARGE = 1_000_000, 10_000_000
ROUNDS, WARMING = 7, 2
MEMORY_BYTES = 1.5 * 2**30
READERS = 4
VISIBLE_REQUESTS, WATCHED_OF = 4_000, 8


@dataclass(frozen=True)
class Shape:
    """How large a request is, and how many of them make a round."""

    rows: int
    requests: int

    @property
    def name(self) -> str:
        return f"{self.rows // 1000}k"


THOUSAND, HUNDRED_THOUSAND, TOUCHING = Shape(1_000, 50), Shape(100_000, 3), Shape(100_000, 10)


class Side:
    """A node with so many keys, and what it must hold."""

    def __init__(self, fed: Fed, keys: int) -> None:
        self.fed = fed
        self.changes, self.expected = Changes(keys), Expected(keys)
        seconds = fed.load(keys)
        self.check()
        note(f"{keys:,} keys are loaded in {seconds:.1f} s, {keys / seconds:,.0f} rows/s")

    def batches(self, shape: Shape) -> list[Batch]:
        made = [self.changes.batch(shape.rows) for _ in range(shape.requests)]
        for each in made:
            self.expected.add(each)
        return made

    def rate(self, batches: Sequence[Batch]) -> tuple[float, float]:
        """Rows a second, on the wall and of the node's processor time."""
        rows, before = sum(map(len, batches)), self.fed.processor_seconds()
        seconds = self.fed.feed(batches)
        return rows / seconds, rows / max(self.fed.processor_seconds() - before, 1e-2)

    def check(self) -> None:
        self.expected.check(*self.fed.totals())


def merge_1k(keys: int = SMALL) -> list[Result]:
    """1,000-row requests on 1M keys: at least 50 times the rows a second of MERGE."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        folder = Path(name)
        with fed_node(folder / "node") as fed, spark_table(folder / "peer") as merged:
            return [_against_merge(Side(fed, keys), merged, keys, THOUSAND, goal=50)]


def merge_100k(keys: int = LARGE) -> list[Result]:
    """100,000-row requests on 10M keys: at least twice the rows a second of MERGE."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        folder = Path(name)
        with fed_node(folder / "node") as fed, spark_table(folder / "peer") as merged:
            return [_against_merge(Side(fed, keys), merged, keys, HUNDRED_THOUSAND, goal=2)]


def more_keys(large: int = LARGE, small: int = SMALL) -> list[Result]:
    """10M keys against 1M: at least 0.6 of the rows a second, and at most 1.5 GiB of memory of the node's own."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        folder = Path(name)
        with fed_node(folder / "large") as fed, fed_node(folder / "small") as other, watched(fed):
            many, few = Side(fed, large), Side(other, small)
            for side in (many, few):  # a page that is touched for the first time after a load costs a fault
                side.rate(side.batches(TOUCHING))
            results = [_more_keys(many, few, shape) for shape in (THOUSAND, HUNDRED_THOUSAND)]
            for side in (many, few):  # a scan of everything belongs to the memory, too
                side.check()
            note(f"memory with {small:,} keys: {other.look() / 2**20:,.0f} MiB")
        used = fed.anonymous_bytes
    results.append(
        Result("ingest-more-keys-memory", used / 2**20, MEMORY_BYTES / 2**20, "MiB", MEMORY_BYTES / used, 1.0)
    )
    return results


def visible(keys: int = SMALL, requests: int = VISIBLE_REQUESTS) -> list[Result]:
    """From sending to being in a scan, p99, at half of the load that the node takes; against one MERGE."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        folder = Path(name)
        with spark_table(folder / "peer") as merged:
            merged.load(keys)
            changes = Changes(keys)
            merges = [merged.merge(changes.batch(THOUSAND.rows)) for _ in range(WARMING + ROUNDS)][WARMING:]
        with fed_node(folder / "node") as fed:
            side = Side(fed, keys)
            full = statistics.median(side.rate(side.batches(THOUSAND))[0] for _ in range(WARMING + ROUNDS))
            seconds = sorted(_seen_after(side, requests, every_seconds=THOUSAND.rows / (full / 2)))
            side.check()
    p50, p99 = (seconds[math.ceil(len(seconds) * share) - 1] for share in (0.5, 0.99))
    note(f"at {full / 2:,.0f} rows/s, half of {full:,.0f}: p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms")
    merge = statistics.median(merges)
    return [Result("ingest-visible-p99", p99 * 1000, merge * 1000, "milliseconds", merge / p99, 20)]


def _against_merge(side: Side, merged: Merged, keys: int, shape: Shape, goal: float) -> Result:
    expected = Expected(keys)
    note(f"the peer loads them in {merged.load(keys):.1f} s")
    rates, cores = list[tuple[float, float]](), list[tuple[float, float]]()
    for _ in range(WARMING + ROUNDS):
        batches = side.batches(shape)
        expected.add(batches[0])
        wall, processor = side.rate(batches)
        before = merged.processor_seconds()
        rates.append((wall, shape.rows / merged.merge(batches[0])))
        cores.append((processor, shape.rows / (merged.processor_seconds() - before)))
    side.check()
    expected.check(*merged.totals())
    ours, peer = (statistics.median(each[turn] for each in cores[WARMING:]) for turn in (0, 1))
    note(f"rows a second of one core: ours {ours:,.0f}, MERGE {peer:,.0f}; {VIRTUAL_NODES} virtual nodes")
    return _result(f"ingest-merge-{shape.name}", rates[WARMING:], goal)


def _more_keys(many: Side, few: Side, shape: Shape) -> Result:
    rates = [(many.rate(many.batches(shape)), few.rate(few.batches(shape))) for _ in range(WARMING + ROUNDS)][WARMING:]
    cores = [(one[1], other[1]) for one, other in rates]
    ours, peer = (statistics.median(each[turn] for each in cores) for turn in (0, 1))
    note(f"{shape.name}, rows a second of one core: {ours:,.0f} against {peer:,.0f} with fewer keys")
    return _result(f"ingest-more-keys-{shape.name}", [(one[0], other[0]) for one, other in rates], 0.6)


def _result(name: str, rates: Sequence[tuple[float, float]], goal: float) -> Result:
    ours, peer = (statistics.median(each[turn] for each in rates) for turn in (0, 1))
    return Result(name, ours, peer, "rows/s", statistics.median(one / other for one, other in rates), goal)


def _seen_after(side: Side, requests: int, every_seconds: float) -> list[float]:
    """Seconds from the moment at which each request was due; who comes late pays for it. Sent as the full load is."""
    batches = side.batches(Shape(THOUSAND.rows, requests))
    encoded = [side.fed.updates(each) for each in batches]  # what is measured begins with the sending
    found: list[Future[float]] = []
    committed: list[float] = []
    began = time.perf_counter() + 0.1
    due = [began + number * every_seconds for number in range(requests)]
    with ThreadPoolExecutor(READERS) as readers:
        for number, commit in enumerate(side.fed.paced(encoded, due)):
            commit.add_done_callback(lambda _, at=due[number]: committed.append(time.perf_counter() - at))
            if number % WATCHED_OF == 0:  # readers must not become the load
                found.append(readers.submit(_seen, side.fed, batches[number], due[number], commit))
        seconds = [each.result() for each in found]
    note(f"acknowledged and committed: p99 {sorted(committed)[math.ceil(len(committed) * 0.99) - 1] * 1000:.1f} ms")
    return seconds


def _seen(fed: Fed, batch: Batch, due: float, commit: grpc.Future[pb.CommitTransactionResponse]) -> float:
    """When a reader that begins after the commit has the new keys of the batch; later ones are greater."""
    commit.result()
    client = fed.client
    new = set(batch.rows.column("id").filter(pa.array(~batch.is_known)).to_pylist())
    begun = client.call(client.time.BeginTransaction, pb.BeginTransactionRequest(read_only=True))
    wanted = [pb.Predicate(column="id", comparison=">=", integer=min(new))]
    rows = client.scan("t", begun.timestamp, columns=["id", "v"], predicates=wanted).read_all()
    seconds = time.perf_counter() - due
    client.call(client.time.CommitTransaction, pb.CommitTransactionRequest(transaction_id=begun.transaction_id))
    assert new <= set(rows.column("id").to_pylist())
    return seconds


BENCHES: dict[str, Callable[..., list[Result]]] = {
    "1k": merge_1k,
    "100k": merge_100k,
    "keys": more_keys,
    "visible": visible,
}

if __name__ == "__main__":
    show(BENCHES[sys.argv[1]](*map(int, sys.argv[2:])))
