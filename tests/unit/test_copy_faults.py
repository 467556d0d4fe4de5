"""Copy and verify on stores that lose requests and answers, again and again, beside a plain model of what must be.

Whatever happens on the way: originals stay, nothing wrong appears, and once the stores behave, exactly the files that
cannot be had are named.
"""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from headwater.kernel.errors import HeadwaterError
from headwater.kernel.metrics import Metrics
from headwater.storage.faulty import Faults, FaultyStore
from headwater.storage.port import ObjectStore
from headwater.sync.copy.elsewhere import Elsewhere
from headwater.sync.copy.metrics import Meter
from headwater.sync.copy.model import CopyBatch, CopyFailedError, CopyItem
from headwater.sync.copy.protocol import Copier, CopyPorts
from headwater.sync.copy.stores import StoreMover
from headwater.sync.runs.model import Backlog
from headwater.sync.verify.model import VerifyFailedError, VerifyItem
from headwater.sync.verify.protocol import Verifier
from headwater.tables.files import Files
from tests.unit.copy_world import PREFIXES, REGISTRY, World

pytestmark = pytest.mark.proves("copying between regions")
FAULTS = Faults(before=0.15, after=0.15, late=0.1)
# What can be had: from its source, or from a third region; or it is there. What cannot: something else is in its place
# (of another length, or of the same: a twin), or nobody has it.
KINDS = ("absent", "present", "elsewhere", "local-elsewhere", "occupied", "twin", "lost")


class Model:
    """Files in every state that their two ends can be in, and what the destination must hold in the end."""

    def __init__(self, seed: int) -> None:
        self.world = World()
        self.kinds: dict[str, str] = {}
        self.items: dict[str, CopyItem] = {}
        self.wanted: dict[str, bytes] = {}
        chance = random.Random(seed)
        for number in range(20):
            name, kind = f"t/f{number}", chance.choice(KINDS)
            self._plant(name, kind, chance.randbytes(chance.randrange(2, 50)))

    def _plant(self, name: str, kind: str, data: bytes) -> None:
        write, other = self.world.write, bytes(reversed(data)) + b"!"
        if kind not in ("elsewhere", "local-elsewhere", "lost"):
            write("us", name, data)
        if "elsewhere" in kind:
            write("asia", name, data)
        lies = {"present": data, "occupied": other, "twin": other[: len(data)]}.get(kind)
        if lies is not None:
            write("eu", name, lies)
        destination = PREFIXES["eu"] + name
        self.kinds[name] = kind
        self.items[name] = CopyItem(destination if "local" in kind else PREFIXES["us"] + name, destination, len(data))
        if kind != "lost":
            self.wanted[name] = data if lies is None else lies

    def of(self, *kinds: str) -> set[str]:
        """The destinations of the files of these kinds."""
        return {self.items[name].destination for name, kind in self.kinds.items() if kind in kinds}

    def held(self) -> dict[str, bytes]:
        """What the destination holds now."""
        store = self.world.stores["eu"]
        return {meta.path: store.get(meta.path).data for meta in store.list()}

    def run(self, stores: dict[str, ObjectStore]) -> None:
        """One run of copy, then of verify; each file that was there when it was planned is read."""
        files = Files({PREFIXES[name]: store for name, store in stores.items()})
        ports = CopyPorts(StoreMover(files), files, Elsewhere(REGISTRY), tuple(PREFIXES.values()))
        names = sorted(self.items)
        batches = [CopyBatch(str(start), tuple(self.items[name] for name in names[start::4])) for start in range(4)]
        clock = self.world.clock
        missing = None
        try:
            Copier(ports, Meter(Metrics(), "eu", clock), clock).run(batches, lambda _: None, Backlog())
        except CopyFailedError as error:
            missing = error
        there = [name for name in names if self.kinds[name] not in ("lost", "occupied")]
        Verifier(ports, rate=1.0).verify(
            VerifyItem(self.items[name], self.kinds[name] not in ("present", "twin"), must_read=True) for name in there
        )
        if missing is not None:
            raise missing


@pytest.mark.hazard("R6")
@pytest.mark.parametrize("seed", range(25))
def test_r6_faults_change_what_is_reached_and_never_what_is_right(seed: int) -> None:
    model = Model(seed)
    faulty = {
        name: FaultyStore(store, FAULTS, model.world.clock, random.Random(seed))
        for name, store in model.world.stores.items()
    }
    for _ in range(4):
        with suppress(HeadwaterError):
            model.run(dict(faulty))
        assert model.held().items() <= model.wanted.items()
    for each in faulty.values():
        each.land_everything()
    assert model.held().items() <= model.wanted.items()

    quiet: dict[str, ObjectStore] = dict(model.world.stores)
    twins = model.of("twin")
    if twins:
        with pytest.raises(VerifyFailedError) as wrong:
            model.run(quiet)
        assert {each.verified.item.destination for each in wrong.value.findings} == twins
    else:
        try:
            model.run(quiet)
            lacking = set()
        except CopyFailedError as error:
            lacking = {each.item.destination for each in error.lacking}
        assert lacking == model.of("occupied", "lost")
    assert model.held() == model.wanted
