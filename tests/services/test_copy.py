"""Copying and verifying with the real rclone, between buckets of a real S3 server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from headwater.devservices import Endpoint, create_bucket
from headwater.kernel import settings
from headwater.kernel.clock import SystemClock
from headwater.kernel.metrics import Metrics
from headwater.regions.registry.model import Region, Registry
from headwater.storage.cloud import open_s3
from headwater.storage.port import Create, ObjectStore, Overwrite
from headwater.sync.copy.metrics import TRANSFERRED, Meter
from headwater.sync.copy.model import BatchReport, CopyBatch, CopyFailedError, CopyItem, Outcome
from headwater.sync.copy.opening import open_ports
from headwater.sync.copy.protocol import Copier
from headwater.sync.runs.model import Backlog
from headwater.sync.verify.model import VerifyFailedError, VerifyItem
from headwater.sync.verify.protocol import Verifier
from headwater.tables.files import Files
from tests.fixtures.stores import s3_settings
from tests.services.test_devservices import until

pytestmark = [pytest.mark.services, pytest.mark.proves("copying between regions")]
REGIONS = ("us", "eu", "asia")
ODD_NAMES = (
    "plain.parquet",
    "a b.parquet",
    "p=a%2Fb/ü ñ.parquet",
    "q='x';y&z/1.parquet",
    "  lead and trail  ",
    "*[a]{b}",
)


@dataclass
class World:
    """Three regions, each a prefix of a bucket of its own."""

    endpoint: Endpoint
    extra_settings: Mapping[str, str] = field(default_factory=dict)
    extra_environ: Mapping[str, str] = field(default_factory=dict)
    run: str = field(default_factory=lambda: uuid4().hex)
    metrics: Metrics = field(default_factory=Metrics)
    noted: list[BatchReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stores: dict[str, ObjectStore] = {}
        for region in REGIONS:
            create_bucket(self.endpoint, f"copy-{region}")
            self.stores[region] = open_s3(f"copy-{region}", s3_settings(self.endpoint), timeout_seconds=30)
        self.registry = Registry(
            tuple(Region(name, self.prefix(name), f"main_replica_{name}", f"{name}-prod") for name in REGIONS),
            tuple(self.prefix(name) for name in REGIONS),
        )
        files = Files({f"s3://copy-{name}": self.stores[name] for name in REGIONS})
        environ = {
            "HEADWATER_STORAGE_S3_ENDPOINT": self.endpoint.url,
            "HEADWATER_STORAGE_S3_ACCESS_KEY_ID": str(self.endpoint.access_key_id),
            "HEADWATER_STORAGE_S3_SECRET_ACCESS_KEY": str(self.endpoint.secret_access_key),
            **self.extra_settings,
        }
        self.ports = open_ports(
            self.registry, files, settings.load(environ=environ), {**os.environ, **self.extra_environ}
        )

    def prefix(self, region: str) -> str:
        return f"s3://copy-{region}/{self.run}/{region}/"

    def write(self, region: str, name: str, data: bytes) -> None:
        self.stores[region].put(f"{self.run}/{region}/{name}", data, Create())

    def read(self, region: str, name: str) -> bytes:
        return self.stores[region].get(f"{self.run}/{region}/{name}").data

    def names(self, region: str) -> set[str]:
        root = f"{self.run}/{region}"
        return {meta.path.removeprefix(f"{root}/") for meta in self.stores[region].list(root)}

    def item(self, name: str, size_bytes: int, source: str = "us", to: str = "eu") -> CopyItem:
        return CopyItem(self.prefix(source) + name, self.prefix(to) + name, size_bytes)

    def copy(self, *items: CopyItem) -> BatchReport:
        clock = SystemClock()
        copier = Copier(self.ports, Meter(self.metrics, "eu", clock), clock)
        copier.run([CopyBatch("b", items)], self.noted.append, Backlog())
        return self.noted[-1]


@pytest.fixture
def world(versitygw: Endpoint) -> World:
    return World(versitygw)


def test_every_byte_arrives_whatever_the_files_are_called(world: World) -> None:
    written = {name: os.urandom(1000 + number) for number, name in enumerate(ODD_NAMES)}
    written["empty"] = b""
    written["large"] = os.urandom(12 * 1024 * 1024)  # in parts
    for name, data in written.items():
        world.write("us", name, data)
    world.write("asia", "other/origin.parquet", b"asia")
    items = [world.item(name, len(data)) for name, data in written.items()]
    report = world.copy(*items, world.item("other/origin.parquet", 4, source="asia"))
    assert {each.outcome for each in report.files} == {Outcome.COPIED}
    assert {name: world.read("eu", name) for name in written} == written
    assert world.read("eu", "other/origin.parquet") == b"asia"
    moved = sum(map(len, written.values())) + 4
    assert report.transferred_bytes == moved
    assert world.metrics.value(TRANSFERRED, region="eu") == moved
    again = world.copy(*items)
    assert {each.outcome for each in again.files} == {Outcome.PRESENT}
    assert again.transferred_bytes == 0
    everything = [VerifyItem(item) for item in items]
    assert Verifier(world.ports, rate=1.0).verify(everything).read_bytes == moved - 4


@pytest.mark.hazard("R6")
def test_r6_rclone_overwrites_nothing(world: World) -> None:
    for name in ("same", "longer", "new"):
        world.write("us", name, b"four")
    world.write("eu", "same", b"ours")
    world.write("eu", "longer", b"ours is longer")
    with pytest.raises(CopyFailedError, match=r"us/longer .*something else is there, of 14 bytes and not 4"):
        world.copy(*(world.item(name, 4) for name in ("same", "longer", "new")))
    assert [world.read("eu", name) for name in ("same", "longer", "new")] == [b"ours", b"ours is longer", b"four"]
    same = world.item("same", 4)
    with pytest.raises(VerifyFailedError, match="eu/same has the SHA-256"):
        Verifier(world.ports, rate=0.0).verify([VerifyItem(same, must_read=True)])
    assert world.read("eu", "same") == b"ours"


def test_a_source_that_vanished_is_found_in_another_region(world: World) -> None:
    world.write("us", "there", b"1234")
    world.write("asia", "vanished", b"5678")
    report = world.copy(world.item("there", 4), world.item("vanished", 4))
    assert report.files[1].origin == world.prefix("asia") + "vanished"
    assert world.read("eu", "vanished") == b"5678"
    with pytest.raises(CopyFailedError, match="it has vanished") as caught:
        world.copy(world.item("there", 4), world.item("nowhere", 4))
    assert [each.item.source for each in caught.value.lacking] == [world.prefix("us") + "nowhere"]


def test_a_damaged_copy_is_made_again(world: World) -> None:
    world.write("us", "f", b"good")
    item = world.item("f", 4)
    world.copy(item)
    world.stores["eu"].put(f"{world.run}/eu/f", b"evil", Overwrite())
    assert Verifier(world.ports, rate=1.0).verify([VerifyItem(item, may_replace=True)]).recopied_files == 1
    assert world.read("eu", "f") == b"good"


def test_a_region_that_is_out_of_reach_fails_its_own_files_alone(versitygw: Endpoint) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and nobody listens
        port = closed.getsockname()[1]
        world = World(versitygw, extra_environ={"RCLONE_CONFIG_ASIA-PROD_ENDPOINT": f"http://127.0.0.1:{port}"})
        world.write("us", "near", b"1234")
        far = [world.item(f"far{number}", 4, source="asia") for number in range(60)]
        for number in range(60):
            world.write("asia", f"far{number}", b"5678")
        with pytest.raises(CopyFailedError, match=r"asia/far0 .*refused") as caught:
            world.copy(world.item("near", 4), *far)
    assert {each.outcome for each in caught.value.lacking} == {Outcome.FAILED}
    assert len(caught.value.lacking) == 60
    assert world.names("eu") == {"near"}


def test_a_remote_that_rclone_does_not_know_is_named(versitygw: Endpoint, tmp_path: Path) -> None:
    empty = tmp_path / "rclone.conf"
    empty.touch()
    world = World(versitygw, extra_settings={"HEADWATER_SYNC_RCLONE_CONFIG": str(empty)})
    world.write("us", "f", b"1234")
    with pytest.raises(CopyFailedError, match="us-prod"):
        world.copy(world.item("f", 4))


SLOW = "import sys; from tests.services.test_copy import slow_copy; slow_copy(*sys.argv[1:])"


def slow_copy(url: str, key: str, secret: str, run: str) -> None:
    """What a child does until it, or its rclone, is killed: one large file at 2 MB a second."""
    port = int(url.rpartition(":")[2])
    endpoint = Endpoint("s3", None, port, url, True, Path(), key, secret)
    limit = {"HEADWATER_SYNC_COPY_BANDWIDTH_BYTES_PER_SECOND": "4000000"}
    world = World(endpoint, extra_settings=limit, run=run)
    world.copy(_large(world))


def _large(world: World) -> CopyItem:
    return world.item("large", 16_000_000)


def rclones(of: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(of).children() if child.name() == "rclone"]


@pytest.mark.parametrize("victim", ["the copier", "rclone"])
def test_a_kill_leaves_nothing_half_and_no_process(world: World, victim: str) -> None:
    data = os.urandom(16_000_000)
    world.write("us", "large", data)
    keys = (world.endpoint.url, str(world.endpoint.access_key_id), str(world.endpoint.secret_access_key))
    argv = [sys.executable, "-c", SLOW, *keys, world.run]
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as child:
        until(lambda: bool(rclones(child.pid)))
        [mover] = rclones(child.pid)
        # In the middle: at 2 MB a second, most of the 16 are still to come.
        until(lambda: mover.io_counters().read_chars > 3_000_000)
        assert keys[2] not in " ".join(mover.cmdline())
        if victim == "rclone":
            mover.send_signal(signal.SIGKILL)
            # It is retried alone, by another process.
            until(lambda: any(each.pid != mover.pid for each in rclones(child.pid)))
            [mover] = rclones(child.pid)
        child.kill()
    mover.wait(10)  # it does not outlive us
    assert world.names("eu") == set()
    world.copy(_large(world))
    assert world.read("eu", "large") == data
