"""What the primary index does in a second, and what ten times the keys cost.

The pattern is the node's: a batch of random keys of 8 to 24 bytes is resolved, gets row ids and places, and replaces
what was resolved, with history. Both sizes take turns. Processor time stands beside the time on the wall, because on a
shared machine the latter is everybody's.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.measure import Result
from headwater.ingest.index import MainIndex, PrimaryIndex
from headwater.ingest.keys import Keys
from headwater.ingest.model import Bools, Int64s, RowRange
from headwater.kernel.clock import SystemClock
from headwater.kernel.randomness import system_randomness

TABLE, FILE = 1, 1
LOADED_TOGETHER = 200_000
SMALL, LARGE = 1_000_000, 10_000_000
SHAPES = ((1_000, 60, 9), (100_000, 1, 5))  # batch, batches in a round, rounds
WARMING = (100_000, 8)
MEMORY_BYTES = 1.5 * 2**30


def mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Numbers that look random, each from one of its own (splitmix64)."""
    z = numbers * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def keys_at(places: Int64s) -> Keys:
    """The keys with these numbers: 8 to 24 bytes."""
    words = [mixed(places.astype(np.uint64) + np.uint64(part << 40)) for part in (1, 2, 3)]
    whole = np.stack([word.astype(">u8") for word in words], axis=1).view(np.uint8).reshape(-1, 24)
    lengths = 8 + (words[1] % np.uint64(17)).astype(np.int64)
    offsets = np.zeros(len(places) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return Keys(whole[np.arange(24) < lengths[:, None]], offsets)


def visible(files: Int64s) -> Bools:
    return np.equal(files, FILE)


class Loaded:
    """An index that holds `count` keys."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count, self.timestamp = count, 1
        self.random = np.random.default_rng(count)
        self.main = MainIndex.open(folder / "main.db")
        made = PrimaryIndex.open(
            folder / "primary", self.main, clock=SystemClock(), randomness=system_randomness(), map_bytes=2**36
        )
        self.primary = made
        # In the order of their bytes, as a bulk load would come.
        order = np.argsort(mixed(np.arange(count, dtype=np.uint64) + np.uint64(1 << 40)))
        for start in range(0, count, LOADED_TOGETHER):
            keys = keys_at(order[start : start + LOADED_TOGETHER])
            made.put_primary_entries_only(TABLE, keys, 1, self.rows(len(keys)))
        made.flush()

    def rows(self, count: int) -> Int64s:
        """New rows, with places."""
        first = self.main.allocate(count)
        self.main.put_main_index_entries([RowRange(first, count, FILE, 0, first)])
        return np.arange(first, first + count, dtype=np.int64)

    def replace(self, batch: int) -> None:
        """One request."""
        keys = keys_at(np.unique(self.random.integers(0, self.count, batch)))
        self.timestamp += 1
        resolved = self.primary.resolve_primary(TABLE, keys, visible)
        assert resolved.is_found.all()
        self.primary.update_primary_resolved(TABLE, keys, self.timestamp, resolved, self.rows(len(keys)))

    def rates(self, batch: int, batches: int) -> tuple[float, float]:
        """Keys a second, on the wall and of processor time."""
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(batches):
            self.replace(batch)
        keys = batch * batches
        return keys / (time.perf_counter() - wall), keys / (time.process_time() - processor)

    def close(self) -> None:
        self.primary.close()
        self.main.close()


@contextmanager
def loaded(count: int) -> Iterator[Loaded]:
    with tempfile.TemporaryDirectory() as folder:
        index = Loaded(Path(folder), count)
        try:
            yield index
        finally:
            index.close()


def anonymous_bytes() -> int:
    """Memory of this process that no file stands behind."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


def ten_times_the_keys(small: int = SMALL, large: int = LARGE) -> list[Result]:
    """Ten million keys against one: at least 0.6 of the throughput; and the memory of both together."""
    results, peak = list[Result](), 0
    with loaded(large) as many, loaded(small) as few:
        for index in (many, few):  # a page that is touched for the first time after a load costs a fault
            index.rates(*WARMING)
        for batch, batches, rounds in SHAPES:
            pairs = [(many.rates(batch, batches), few.rates(batch, batches)) for _ in range(rounds)]
            peak = max(peak, anonymous_bytes())
            walls = [(one[0], other[0]) for one, other in pairs]
            processors = [(one[1], other[1]) for one, other in pairs]
            for unit, rates in (("keys/s", walls), ("keys/s of CPU", processors)):
                ours, peer = (statistics.median(rate[side] for rate in rates) for side in (0, 1))
                ratio = statistics.median(one / other for one, other in rates)
                results.append(Result(f"index-{batch}-of-{large}", ours, peer, unit, ratio, 0.6))
    results.append(
        Result(f"index-memory-{large}", peak / 2**20, MEMORY_BYTES / 2**20, "MiB", MEMORY_BYTES / max(peak, 1), 1.0)
    )
    return results


if __name__ == "__main__":
    for each in ten_times_the_keys(*map(int, sys.argv[1:])):
        print(f"{each.name:30} {each.ours:12,.0f} {each.peer:12,.0f} {each.ratio:6.2f} {each.unit}", flush=True)
