"""Copy batches of files to where a replica will look for them.

Promise: when `run` returns, every file of every batch is at its destination, with the bytes that a mover brought or
with those that were there before. When it raises, the error names each file that is not, and all the others are; if
stores did not answer and nothing else is wrong, it says so by its kind.

Invariants
- Nothing that is at a destination is changed, whoever put it there (R6). Copying is by create-if-absent, or by
  rclone's `--immutable`.
- Nothing is deleted, and nothing is written anywhere but at the destinations.
- A batch is noted as done only after each of its files was seen to arrive, or to be there.
- A source counts as vanished only when its store says that there is no such object; a store that does not answer
  says nothing.

Commit point: none. Files at their destinations are excess until a promoted commit names them; the note of a batch
spares the next run the look at its files, and nothing else.

What a crash leaves behind, and what the next run makes of it:

    while files are moved     some files, each whole (a store's upload is atomic, a folder gets a link): they are found
                              present; an upload that was cut off is invisible, and is made again
    after the last file       all files, and a batch that is not noted: all are found present, and it is noted
    after the note            the batch is done, and is not given to us again
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass

from headwater.kernel.clock import Clock
from headwater.kernel.errors import HeadwaterError, UnavailableError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.logs import Log
from headwater.storage.errors import ObjectNotFoundError
from headwater.sync.copy.decide import Next, alone, is_worth_a_retry, legs, next_step
from headwater.sync.copy.metrics import Meter
from headwater.sync.copy.model import (
    Alternatives,
    BatchReport,
    Completions,
    Copied,
    CopyBatch,
    CopyItem,
    Leg,
    Locator,
    Moved,
    Mover,
    Outcome,
    failure,
)
from headwater.sync.runs.model import Backlog

_LOOKERS = 8
_log = Log("sync.copy")


@dataclass(frozen=True)
class CopyPorts:
    """What copying leans on. `prefixes` are the regions' local ones."""

    mover: Mover
    files: Locator
    alternatives: Alternatives
    prefixes: Sequence[str] = ()


class Copier:
    """Copies for one region; `processes` batches are under way at a time."""

    def __init__(self, ports: CopyPorts, meter: Meter, clock: Clock, *, processes: int = 2) -> None:
        self._ports = ports
        self._meter = meter
        self._clock = clock
        self._processes = processes
        self._is_stopped = threading.Event()

    def run(self, batches: Iterable[CopyBatch], completions: Completions, backlog: Backlog) -> None:
        """Copy all batches and note each that is whole; files that did not arrive are named at the end.

        The batches are taken one after the other, as there is room for them, and are never all in memory.
        """
        self._meter.waiting(backlog)
        lacking: list[Copied] = []
        with ThreadPoolExecutor(self._processes, thread_name_prefix="batch") as pool, self._stopping():
            for report in self._in_turn(pool, batches):
                self._meter.arrived(report)
                hit(Failpoint.COPY_AFTER_MOVE)
                if report.lacking:
                    lacking.extend(report.lacking)
                else:
                    completions(report)
                    hit(Failpoint.COPY_AFTER_NOTE)
        if lacking:
            raise failure(lacking)

    def copy(self, batch: CopyBatch) -> BatchReport:
        """Copy one batch, and say what became of each of its files."""
        began_seconds = self._clock.monotonic()
        known: dict[CopyItem, Copied] = {}
        waiting: dict[CopyItem, tuple[str, bool]] = {}
        transferred_bytes = 0
        for leg in legs(batch.items, self._ports.prefixes):
            moved = self._move(leg)
            transferred_bytes += moved.transferred_bytes
            is_worth_it = is_worth_a_retry(len(leg.items) - len(moved.copied) - len(moved.present))
            for name, item in leg.items:
                if name in moved.copied or name in moved.present:
                    outcome = Outcome.COPIED if name in moved.copied else Outcome.PRESENT
                    known[item] = Copied(item, outcome, item.source)
                else:
                    waiting[item] = (moved.failed.get(name, ""), is_worth_it)
        # A local file that is missing is in no leg: it has nowhere to come from but the other regions.
        waiting |= {item: ("", True) for item in batch.items if item not in known and item not in waiting}
        if waiting:
            with ThreadPoolExecutor(_LOOKERS, thread_name_prefix="alone") as pool:
                for settled in pool.map(lambda each: self._settle(each[0], *each[1]), waiting.items()):
                    known[settled.item] = settled
        files = tuple(known[item] for item in batch.items)
        return BatchReport(batch.id, files, transferred_bytes, self._clock.monotonic() - began_seconds)

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """Whatever ends the block early, an interrupt or a lost lease, keeps the other batches from beginning a leg."""
        self._is_stopped.clear()
        try:
            yield
        finally:
            self._is_stopped.set()
            self._meter.ended()

    def _in_turn(self, pool: ThreadPoolExecutor, batches: Iterable[CopyBatch]) -> Iterator[BatchReport]:
        """Reports as they come; the next batch is taken when one has ended."""
        left = iter(batches)
        running: set[Future[BatchReport]] = set()
        while True:
            while len(running) < self._processes and (batch := next(left, None)) is not None:
                running.add(pool.submit(self.copy, batch))
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()

    def _settle(self, item: CopyItem, reason: str, is_worth_it: bool) -> Copied:  # noqa: FBT001
        """What becomes of a file that the leg did not bring."""
        try:
            destination_bytes = self._length(item.destination)
            source_bytes = None if item.source == item.destination else self._length(item.source)
        except HeadwaterError as error:
            is_silent = isinstance(error, UnavailableError)
            return Copied(item, Outcome.FAILED, item.source, reason or str(error), is_silent)
        match next_step(item, source_bytes=source_bytes, destination_bytes=destination_bytes):
            case Next.THERE:
                return Copied(item, Outcome.PRESENT, item.source)
            case Next.OCCUPIED:
                occupied = f"something else is there, of {destination_bytes} bytes and not {item.size_bytes}"
                return Copied(item, Outcome.FAILED, item.source, occupied)
            case Next.ELSEWHERE:
                return self._from_elsewhere(item)
            case Next.ALONE:
                if not is_worth_it:
                    return Copied(item, Outcome.FAILED, item.source, reason or "the mover did not find it")
                return self._alone(item, item.source) or Copied(item, Outcome.FAILED, item.source, reason)

    def _from_elsewhere(self, item: CopyItem) -> Copied:
        """Bring a file whose source has vanished from another region; only one of the same size is taken for it."""
        asked = [uri for uri in self._ports.alternatives(item.source) if uri != item.destination]
        silent: list[HeadwaterError] = []
        for uri in asked:
            try:
                if self._length(uri) != item.size_bytes:
                    continue
            except HeadwaterError as error:
                silent.append(error)
                continue
            _log.warning("a source has vanished; another region has it", source=item.source, origin=uri)
            found = self._alone(item, uri)
            if found is not None and found.is_there:
                return found
        if silent:
            told = f"it is not there, and another region is silent: {silent[-1]}"
            is_silent = all(isinstance(each, UnavailableError) for each in silent)
            return Copied(item, Outcome.FAILED, item.source, told, is_silent)
        places = ", ".join([item.source, *asked])
        return Copied(item, Outcome.VANISHED, item.source, f"it has vanished: it is not at {places}")

    def _alone(self, item: CopyItem, source: str) -> Copied | None:
        """Copy one file by itself; None when the mover does not find it."""
        moved = self._move(alone(item, source, self._ports.prefixes))
        if moved.copied:
            return Copied(item, Outcome.COPIED, source)
        if moved.present:
            return Copied(item, Outcome.PRESENT, source)
        reason = next(iter(moved.failed.values()), None)
        return None if reason is None else Copied(item, Outcome.FAILED, source, reason)

    def _move(self, leg: Leg) -> Moved:
        if self._is_stopped.is_set():
            return Moved(failed={name: "the run was stopped" for name, _ in leg.items})
        counted_bytes = 0

        def progress(transferred_bytes: int) -> None:
            nonlocal counted_bytes
            self._meter.moved(transferred_bytes - counted_bytes)
            counted_bytes = transferred_bytes

        moved = self._ports.mover.move(leg, progress)
        progress(moved.transferred_bytes)
        return moved

    def _length(self, uri: str) -> int | None:
        store, path = self._ports.files.place(uri)
        try:
            return store.head(path).size_bytes
        except ObjectNotFoundError:
            return None
