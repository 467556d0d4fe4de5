"""Three regions as buckets in memory, and a mover that can be told to misbehave."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headwater.kernel.clock import ManualClock
from headwater.kernel.metrics import Metrics
from headwater.regions.registry.model import Region, Registry
from headwater.storage.memory import MemoryStore
from headwater.storage.port import Create, Overwrite
from headwater.sync.copy.elsewhere import Elsewhere
from headwater.sync.copy.metrics import Meter
from headwater.sync.copy.model import BatchReport, CopyBatch, CopyItem, Leg, Moved, Progress
from headwater.sync.copy.protocol import Copier, CopyPorts
from headwater.sync.copy.stores import StoreMover
from headwater.sync.runs.model import Backlog
from headwater.sync.verify.protocol import Verifier
from headwater.tables.files import Files

PREFIXES = {"us": "s3://us/", "eu": "s3://eu/lake/", "asia": "s3://asia/"}
REGISTRY = Registry(
    tuple(Region(name, prefix, f"main_replica_{name}", f"{name}-prod") for name, prefix in PREFIXES.items()),
    tuple(PREFIXES.values()),
)


@dataclass
class MoodyMover:
    """Moves like the inner one, except for what it was told: these names fail so often, these come out damaged."""

    inner: StoreMover
    failing: dict[str, int] = field(default_factory=dict)
    damaged: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    legs: list[Leg] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)

    def move(self, leg: Leg, progress: Progress, *, replace: bool = False) -> Moved:
        self.legs.append(leg)
        failed = {}
        left = []
        for name, item in leg.items:
            if replace:
                self.replaced.append(item.destination)
            if self.failing.get(name, 0) > 0:
                self.failing[name] -= 1
                failed[name] = f"no luck with {name}"
            else:
                left.append((name, item))
        moved = self.inner.move(Leg(leg.source_root, leg.destination_root, tuple(left)), progress, replace=replace)
        for name, item in left:
            times, data = self.damaged.get(name, (0, b""))
            if times > 0 and name in moved.copied:
                self.damaged[name] = (times - 1, data)
                store, path = self.inner._files.place(item.destination)
                store.put(path, data, Overwrite())
        return Moved(moved.copied, moved.present, {**moved.failed, **failed}, moved.transferred_bytes)


class World:
    """What copy and verify work on."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.stores = {name: MemoryStore(self.clock, f"memory://{name}") for name in PREFIXES}
        self.files = Files({prefix: self.stores[name] for name, prefix in PREFIXES.items()})
        self.mover = MoodyMover(StoreMover(self.files))
        self.ports = CopyPorts(self.mover, self.files, Elsewhere(REGISTRY), tuple(PREFIXES.values()))
        self.metrics = Metrics()
        self.noted: list[BatchReport] = []
        self.copier = Copier(self.ports, Meter(self.metrics, "eu", self.clock), self.clock)

    def write(self, region: str, path: str, data: bytes) -> str:
        self.stores[region].put(path, data, Create())
        return PREFIXES[region] + path

    def item(self, path: str, data: bytes = b"data", *, source: str = "us", to: str = "eu") -> CopyItem:
        """A file of the source's region, written now."""
        return CopyItem(self.write(source, path, data), PREFIXES[to] + path, len(data))

    def read(self, uri: str) -> bytes | None:
        store, path = self.files.place(uri)
        return store.get(path).data if store.exists(path) else None

    def copy(self, *batches: Iterable[CopyItem]) -> None:
        made = [CopyBatch(str(number), tuple(items)) for number, items in enumerate(batches)]
        files = sum(len(batch.items) for batch in made)
        self.copier.run(made, self.noted.append, Backlog(files, sum(batch.size_bytes for batch in made)))

    def verifier(self, rate: float = 0.0) -> Verifier:
        return Verifier(self.ports, rate=rate, concurrency=4)
