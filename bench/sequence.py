"""What the boundary costs, and that the length of the history costs nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import Result, compare_rates
from headwater import devservices
from headwater.app import App
from headwater.kernel import settings
from headwater.kernel.clock import SystemClock
from headwater.kernel.ids import new_ulid
from headwater.kernel.metrics import Metrics
from headwater.kernel.randomness import system_randomness
from headwater.sequence.codec import Body, EnvelopeCodec
from headwater.sequence.model import Entry, Namespace
from headwater.sequence.protocol import Sequencer
from headwater.storage.confined import ConfinedStore
from headwater.storage.file import FileStore
from headwater.storage.memory import MemoryStore
from headwater.storage.metered import API_CALLS, MeteredStore
from headwater.storage.port import Create, ObjectStore

PAYLOAD = b"x" * 1000
LONG, SHORT = 100_000, 10
CLOCK, RANDOMNESS = SystemClock(), system_randomness()


class UnguardedSequencer(Sequencer):
    """What the protocol would be without its boundary: whoever creates the object believes to have committed."""

    def _is_behind(self, entry: Entry) -> bool:
        return False


class Appender:
    """Appends to a namespace of its own; `requests` counts what that costs."""

    def __init__(self, store: ObjectStore, name: str, kind: type[Sequencer] = Sequencer) -> None:
        self.metrics = Metrics()
        metered = MeteredStore(store, self.metrics, "bench")
        self.namespace = Namespace("", name, ".manifest")
        self.sequencer = kind(metered, self.namespace, clock=CLOCK, randomness=RANDOMNESS)
        self.last: Entry | None = None

    def append(self) -> None:
        """The commit alone, by a writer that knows what it wrote last."""
        self.last = self.sequencer.write(PAYLOAD, after=self.last)

    def update(self) -> None:
        """Find the latest, then commit."""
        self.sequencer.update(lambda _: PAYLOAD)

    def requests(self, action: Callable[[], object]) -> float:
        before = self._count()
        action()
        return self._count() - before

    def _count(self) -> float:
        return sum(self.metrics.value(API_CALLS, region="bench", op=op) for op in ("get", "head", "put", "list"))


def guarded_on_file() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        store = FileStore(Path(folder), CLOCK, RANDOMNESS)
        ours, peer = Appender(store, "guarded"), Appender(store, "unguarded", UnguardedSequencer)
        return [
            compare_rates("sequence-guarded-file", ours.append, peer.append, count=150, rounds=7, goal=0.8),
            _one_more("sequence-guarded-file-requests", ours, peer),
        ]


def guarded_on_s3() -> list[Result]:
    with _s3() as store:
        ours, peer = Appender(store, "guarded"), Appender(store, "unguarded", UnguardedSequencer)
        return [
            compare_rates("sequence-guarded-s3", ours.append, peer.append, count=100, rounds=7, goal=0.45),
            _one_more("sequence-guarded-s3-requests", ours, peer),
        ]


def history_in_memory() -> list[Result]:
    store = MemoryStore(CLOCK)
    return _history(
        "memory", store, lambda namespace, number, data: store.put(namespace.path_of(number), data, Create())
    )


def history_on_file() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        root = Path(folder)

        def plant(namespace: Namespace, number: int, data: bytes) -> None:
            (root / namespace.folder).mkdir(exist_ok=True)
            (root / namespace.path_of(number)).write_bytes(data)

        return _history("file", FileStore(root, CLOCK, RANDOMNESS), plant)


def _history(place: str, store: ObjectStore, plant: Callable[[Namespace, int, bytes], object]) -> list[Result]:
    long, short = Appender(store, "long"), Appender(store, "short")
    for appender, length in ((long, LONG), (short, SHORT)):
        writer = None
        for number in range(1, length + 1):
            body = Body(new_ulid(CLOCK, RANDOMNESS), writer, PAYLOAD)
            writer = body.writer
            plant(appender.namespace, number, EnvelopeCodec().encode(body))
        appender.update()
    needed, usual = long.requests(long.update), short.requests(short.update)
    return [
        compare_rates(f"sequence-history-{place}", long.update, short.update, count=150, rounds=7, goal=0.8),
        Result(f"sequence-history-{place}-requests", needed, usual, "requests", usual / needed, 1.0),
    ]


def _one_more(name: str, ours: Appender, peer: Appender) -> Result:
    """Exactly one request more than without the check: one less would be as wrong as one more."""
    needed, without = ours.requests(ours.append), peer.requests(peer.append)
    ratio = (without + 1) / needed
    return Result(name, needed, without, "requests", min(ratio, 1 / ratio), 1.0)


@contextmanager
def _s3() -> Iterator[ObjectStore]:
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
    folder.chmod(0o711)
    try:
        endpoint = devservices.up(["s3"], folder, parent_bound=True)["s3"]
        devservices.create_bucket(endpoint, "bench")
        environ = {
            "HEADWATER_STORAGE_S3_ENDPOINT": endpoint.url,
            "HEADWATER_STORAGE_S3_ACCESS_KEY_ID": str(endpoint.access_key_id),
            "HEADWATER_STORAGE_S3_SECRET_ACCESS_KEY": str(endpoint.secret_access_key),
        }
        app = App(settings.load(environ=environ))
        yield ConfinedStore(app.open_store("s3://bench"), "b")
    finally:
        devservices.down(folder, purge=True)
