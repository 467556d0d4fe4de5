"""Following the registry: poll the pointer, verify, and give new work the newest generation that is in force.

Promise: a generation that is handed out is whole, its checksum was verified, and it is never older than one that was
handed out before. It never changes: work that runs keeps the one that it began with. When the registry cannot be
read, or what is read is not sound, the last good generation goes on being handed out, and the failure is counted.
"""

from __future__ import annotations

import threading

from headwater.kernel.clock import Clock
from headwater.kernel.errors import CorruptError, HeadwaterError
from headwater.kernel.logs import Log
from headwater.kernel.metrics import Metric, MetricKind, Metrics
from headwater.regions.errors import NoRegistryError
from headwater.regions.rollout.decide import in_force, may_follow
from headwater.regions.rollout.model import Generation
from headwater.regions.rollout.published import Newest, Published
from headwater.storage.port import Capability, ObjectStore

GENERATION = Metric("registry_generation", MetricKind.GAUGE, "The registry generation that new work gets.")
RELOADS = Metric("registry_reload_success_total", MetricKind.COUNTER, "Registry generations that were taken up.")
FAILURES = Metric(
    "registry_reload_failure_total",
    MetricKind.COUNTER,
    "Polls that failed, or found a registry that is not sound; the last good one stays in use.",
)

FOLLOWING = frozenset({Capability.CONDITIONAL_GET})

_log = Log("regions.rollout")


class RegistryClient:
    """One process's view of the registry. Threads share it."""

    def __init__(self, store: ObjectStore, *, clock: Clock, metrics: Metrics, poll_seconds: float = 30.0) -> None:
        self._published = Published(store)
        self._clock = clock
        self._metrics = metrics
        self._poll_seconds = poll_seconds
        self._lock = threading.Lock()
        self._newest: Newest | None = None
        self._newest_first: tuple[Generation, ...] = ()
        self._held: Generation | None = None
        self._polled_at: float | None = None

    def current(self) -> Generation:
        """The generation for a new piece of work: polled if the last poll is older than `poll_seconds`.

        Raises only when there is no generation to fall back on. While another thread polls, what is held is the answer.
        """
        held = self._held
        if not self._lock.acquire(blocking=held is None):
            assert held is not None
            return held
        try:
            is_due = self._polled_at is None or self._clock.monotonic() - self._polled_at >= self._poll_seconds
            return self._take(self._held) if self._held is not None and not is_due else self._poll()
        finally:
            self._lock.release()

    def refresh(self) -> Generation:
        """The same, and poll in any case."""
        with self._lock:
            return self._poll()

    def _poll(self) -> Generation:
        self._polled_at = self._clock.monotonic()
        try:
            self._reload()
            return self._take(self._held)
        except NoRegistryError:
            raise  # a lake without regions has none, and nothing failed
        except HeadwaterError as error:
            self._metrics.count(FAILURES)
            if self._held is None:
                raise
            _log.warning("the registry was not reloaded", generation=self._held.number, error=error.message)
            return self._take(self._held)

    def _reload(self) -> None:
        """Read what is new. Nothing of it is kept until all of it was found to be sound."""
        if self._newest is None:
            newest = self._published.newest_or_refuse()
        else:
            changed = self._published.newest_if_changed(self._newest.etag)
            if changed is None:
                return
            newest = changed
            seen, offered = self._newest.pointer.link, newest.pointer.link
            if not may_follow(seen, offered):
                raise CorruptError(
                    f"the registry's pointer did not rise: from generation {seen.generation} to {offered.generation}",
                    hint="a rollback is a new generation: find out who wrote the pointer",
                )
        now = self._clock.now()
        found: list[Generation] = []
        for generation in self._published.history(newest.pointer):
            found.append(generation)
            if generation.valid_from <= now:
                break
        self._newest, self._newest_first = newest, tuple(found)

    def _take(self, held: Generation | None) -> Generation:
        """The newest whose time has come, unless a newer one was handed out already."""
        wanted = in_force(self._newest_first, self._clock.now())
        if wanted is None or (held is not None and wanted.number < held.number):
            wanted = held
        if wanted is None:
            raise self._published.too_early(self._newest_first)
        if held is None or wanted.number != held.number:
            self._held = wanted
            self._metrics.count(RELOADS)
            self._metrics.level(GENERATION, wanted.number)
            _log.info("took up a registry", generation=wanted.number)
        return wanted
