"""Which mover takes which files, as the settings and the registry say."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.kernel import settings
from headwater.kernel.clock import ManualClock, SystemClock
from headwater.kernel.errors import UnavailableError
from headwater.kernel.metrics import Metrics
from headwater.kernel.randomness import system_randomness
from headwater.regions.registry.model import Region, Registry
from headwater.storage.file import FileStore
from headwater.storage.memory import MemoryStore
from headwater.storage.port import Create
from headwater.sync.copy.metrics import Meter
from headwater.sync.copy.model import BatchReport, CopyBatch, CopyItem
from headwater.sync.copy.opening import FittingMover, open_ports
from headwater.sync.copy.protocol import Copier
from headwater.sync.copy.rclone import RcloneMover
from headwater.sync.runs.model import Backlog
from headwater.sync.verify.model import VerifyItem
from headwater.sync.verify.protocol import Verifier
from headwater.tables.files import Files

pytestmark = pytest.mark.proves("copying between regions")
# No rclone on this PATH, and none is needed for folders.
NO_RCLONE = {"PATH": "/nowhere"}
UNNAMED = {"HEADWATER_SYNC_RCLONE": "/no/such/rclone"}


class World:
    """A bucket, and two regions that are folders."""

    def __init__(self, tmp_path: Path, environ: dict[str, str]) -> None:
        clock = SystemClock()
        self.prefixes = {"bucket": "s3://bucket/", "us": f"file://{tmp_path}/us/", "eu": f"file://{tmp_path}/eu/"}
        self.bucket = MemoryStore(ManualClock())
        stores = {self.prefixes[name]: FileStore(tmp_path / name, clock, system_randomness()) for name in ("us", "eu")}
        regions = tuple(Region(name, prefix, f"main_replica_{name}") for name, prefix in self.prefixes.items())
        registry = Registry(regions, tuple(self.prefixes.values()))
        files = Files({"s3://bucket": self.bucket, **stores})
        self.ports = open_ports(registry, files, settings.load(environ=environ), NO_RCLONE)
        self.copier = Copier(self.ports, Meter(Metrics(), "eu", clock), clock)
        self.noted: list[BatchReport] = []

    def copy(self, *items: CopyItem) -> None:
        self.copier.run([CopyBatch("b", items)], self.noted.append, Backlog())


def test_folders_are_filled_without_rclone(tmp_path: Path) -> None:
    world = World(tmp_path, UNNAMED)
    (tmp_path / "us").mkdir()
    (tmp_path / "us" / "f").write_bytes(b"from a folder")
    world.bucket.put("g", b"from a bucket", Create())
    items = [
        CopyItem(f"{world.prefixes['us']}f", f"{world.prefixes['eu']}f", 13),
        CopyItem("s3://bucket/g", f"{world.prefixes['eu']}g", 13),
    ]
    world.copy(*items)
    assert (tmp_path / "eu" / "f").read_bytes() == b"from a folder"
    assert (tmp_path / "eu" / "g").read_bytes() == b"from a bucket"
    (tmp_path / "eu" / "g").write_bytes(b"from a ducket")
    verified = Verifier(world.ports, rate=1.0).verify(VerifyItem(item, may_replace=True) for item in items)
    assert verified.recopied_files == 1
    assert (tmp_path / "eu" / "g").read_bytes() == b"from a bucket"


def test_buckets_need_rclone_and_its_absence_is_said(tmp_path: Path) -> None:
    world = World(tmp_path, UNNAMED)
    (tmp_path / "us").mkdir()
    (tmp_path / "us" / "f").write_bytes(b"1234")
    with pytest.raises(UnavailableError, match=r"/no/such/rclone .*headwater\[sync\]"):
        world.copy(CopyItem(f"{world.prefixes['us']}f", "s3://bucket/f", 4))
    assert world.noted == []


def test_the_processes_share_the_bandwidth(tmp_path: Path) -> None:
    program = tmp_path / "rclone"
    program.touch(0o755)
    environ = {
        "HEADWATER_SYNC_RCLONE": str(program),
        "HEADWATER_SYNC_COPY_BANDWIDTH_BYTES_PER_SECOND": "30000",
        "HEADWATER_SYNC_COPY_PROCESSES": "3",
        "HEADWATER_SYNC_COPY_TRANSFERS": "5",
    }
    mover = World(tmp_path, environ).ports.mover
    assert isinstance(mover, FittingMover)
    opened = mover._open_other()
    assert isinstance(opened, RcloneMover)
    assert (opened._options.bandwidth_bytes_per_second, opened._options.transfers) == (10_000, 5)
