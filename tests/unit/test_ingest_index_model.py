"""Both indexes beside a plain dictionary of versions: any history of calls, restarts and prunes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headwater.ingest.keys import Keys, keys_of
from headwater.ingest.model import Bools, Int64s, RowRange
from tests.unit.ingest_index_world import TABLE, World, ids

NAMES = [*"abcdefgh", "long" * 40, "other" * 40]
FILES = (1, 2, 3)
names = st.lists(st.sampled_from(NAMES), unique=True, max_size=len(NAMES))
Chain = list[tuple[int, int | None]]


class Indexes(RuleBasedStateMachine):
    """The dictionary: for each name its versions, newest first, each with the timestamp that replaced it."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.world = World.open(Path(self.folder.name), map_bytes=2**26)
        self.chains: dict[str, Chain] = {name: [] for name in NAMES}
        self.replaced: dict[str, list[int]] = {name: [] for name in NAMES}
        self.places: dict[int, int] = {}
        self.now = 1
        self.pruned = 0

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.close()
            self.folder.cleanup()

    @rule(step=st.integers(0, 2))
    def time_passes(self, step: int) -> None:
        self.now += step

    @rule(some=names, file_id=st.sampled_from(FILES))
    def put(self, some: list[str], file_id: int) -> None:
        rows = self._append(len(some), file_id)
        self.world.primary.put_primary_entries_only(TABLE, self._keys(some), self.now, rows)
        for name, row in zip(some, rows.tolist(), strict=True):
            self._push(name, row)

    @rule(some=names, file_id=st.sampled_from(FILES))
    def update(self, some: list[str], file_id: int) -> None:
        seen = self.world.primary.resolve_primary(TABLE, self._keys(some), self._visible)
        rows = self._append(len(some), file_id)
        self.world.primary.update_primary_resolved(TABLE, self._keys(some), self.now, seen, rows)
        for name, row in zip(some, rows.tolist(), strict=True):
            self._push(name, row)

    @rule(some=names)
    def delete(self, some: list[str]) -> None:
        seen = self.world.primary.resolve_primary(TABLE, self._keys(some), self._visible)
        self.world.primary.tombstone_primary_resolved(TABLE, self._keys(some), self.now, seen)
        for name in some:
            if self.chains[name] and self.chains[name][0][1] is not None:
                self._push(name, None)

    @rule(some=names, others=names)
    def fail_and_put_back(self, some: list[str], others: list[str]) -> None:
        """A request of a new timestamp deletes and writes, fails, and is compensated."""
        touched = sorted({*some, *others})
        at = self.now + 1
        seen = self.world.primary.resolve_primary(TABLE, self._keys(touched), self._visible)
        some_seen = self.world.primary.resolve_primary(TABLE, self._keys(some), self._visible)
        self.world.primary.tombstone_primary_resolved(TABLE, self._keys(some), at, some_seen)
        rows = self._append(len(others), 1)
        self.world.primary.put_primary_entries_only(TABLE, self._keys(others), at, rows)
        self.world.primary.restore_primary_entries(TABLE, self._keys(touched), seen, at)

    @rule(back=st.integers(0, 4))
    def prune(self, back: int) -> None:
        self.pruned = max(self.pruned, self.now - back)
        self.world.primary.prune(TABLE, self.pruned)
        for name, chain in self.chains.items():
            kept = [place for place, when in enumerate(self.replaced[name]) if when >= self.pruned]
            self.replaced[name] = [self.replaced[name][place] for place in kept]
            self.chains[name] = chain[:1] + [chain[place + 1] for place in kept]
            if chain and chain[0][1] is None and chain[0][0] < self.pruned:
                self.chains[name], self.replaced[name] = [], []

    @rule()
    def restart(self) -> None:
        for file_id in FILES:
            self.world.main.flush_index_entries_of_file(file_id)
        self.world = self.world.reopened()

    @invariant()
    def the_dictionary_agrees(self) -> None:
        if not hasattr(self, "world"):
            return
        found = self.world.primary.versions_of(TABLE, self._keys(NAMES))
        chains: dict[str, Chain] = {name: [] for name in NAMES}
        columns = zip(found.places.tolist(), found.timestamps.tolist(), found.row_ids.tolist(), strict=True)
        for place, timestamp, row in columns:
            chains[NAMES[place]].append((timestamp, None if row == -1 else row))
        assert chains == self.chains
        resolved = self.world.primary.resolve_primary(TABLE, self._keys(NAMES), self._visible)
        newest = [chain[0] if chain else (-1, None) for chain in self.chains.values()]
        assert resolved.timestamps.tolist() == [timestamp for timestamp, _ in newest]
        assert resolved.row_ids.tolist() == [-1 if row is None else row for _, row in newest]
        files = [-1 if row is None else self.places[row] for _, row in newest]
        assert resolved.locations.file_ids.tolist() == files
        assert resolved.is_found.tolist() == [file_id in (1, 2) for file_id in files]

    def _append(self, count: int, file_id: int) -> Int64s:
        if count == 0:
            return ids()
        first = self.world.main.allocate(count)
        self.world.main.put_main_index_entries([RowRange(first, count, file_id, 0, first)])
        self.places |= dict.fromkeys(range(first, first + count), file_id)
        return np.arange(first, first + count, dtype=np.int64)

    def _push(self, name: str, row: int | None) -> None:
        if self.chains[name]:
            self.replaced[name].insert(0, self.now)
        self.chains[name].insert(0, (self.now, row))

    @staticmethod
    def _keys(some: list[str]) -> Keys:
        return keys_of([name.encode() for name in some])

    @staticmethod
    def _visible(files: Int64s) -> Bools:
        return np.isin(files, (1, 2))


Indexes.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestIndexes = Indexes.TestCase
