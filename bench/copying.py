"""What our care costs a copy: plans, legs, named failures and metrics around rclone, beside rclone on the same list."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from bench.measure import Result, compare_rates
from headwater import devservices
from headwater.app import App
from headwater.kernel import settings
from headwater.kernel.clock import SystemClock
from headwater.kernel.metrics import Metrics
from headwater.regions.registry.model import Region, Registry
from headwater.storage.port import Create
from headwater.sync.copy.metrics import Meter
from headwater.sync.copy.model import CopyBatch, CopyItem
from headwater.sync.copy.opening import open_ports
from headwater.sync.copy.protocol import Copier
from headwater.sync.copy.rclone import find_rclone
from headwater.sync.copy.remotes import Remotes
from headwater.sync.runs.model import Backlog
from headwater.tables.files import Files

# Many small files and a few larger ones, as a commit has them.
SIZES = [64_000] * 300 + [4_000_000] * 5
CLOCK = SystemClock()


def buckets() -> list[Result]:
    """From bucket to bucket, each time to a place where nothing is."""
    with _app() as app:
        names = _write(app)
        places = count()
        ours, peer = _ours(app, names, places), _plain(app, names, places)
        return [compare_rates("copy-buckets", ours, peer, count=1, rounds=5, goal=0.9)]


def _ours(app: App, names: list[str], places: Iterator[int]) -> Callable[[], None]:
    files = Files({f"s3://bench-{region}": app.open_store(f"s3://bench-{region}") for region in ("us", "eu")})
    ports = open_ports(_registry(), files, app.settings, os.environ)
    copier = Copier(ports, Meter(Metrics(), "eu", CLOCK), CLOCK)

    def copy() -> None:
        place = next(places)
        items = (
            CopyItem(f"s3://bench-us/{name}", f"s3://bench-eu/{place}/{name}", size)
            for name, size in zip(names, SIZES, strict=True)
        )
        copier.run([CopyBatch(str(place), tuple(items))], lambda _: None, Backlog())

    return copy


def _plain(app: App, names: list[str], places: Iterator[int]) -> Callable[[], None]:
    remotes = Remotes.of(_registry(), app.settings.storage.s3)
    program = find_rclone(None, os.environ)

    def copy() -> None:
        target = remotes.path(f"s3://bench-eu/{next(places)}")
        argv = [program, "copy", remotes.path("s3://bench-us"), target, "--files-from", "-", "--no-traverse"]
        argv += ["--transfers", str(app.settings.sync.copy_transfers), "--config", "/notfound"]
        # Both know that the bucket is there.
        argv += ["--checkers", str(2 * app.settings.sync.copy_transfers), "--s3-no-check-bucket"]
        environ = {**os.environ, **remotes.environment}
        subprocess.run(argv, input="\n".join(names).encode(), env=environ, check=True)

    return copy


def _registry() -> Registry:
    regions = tuple(
        Region(name, f"s3://bench-{name}/", f"main_replica_{name}", f"{name}-bench") for name in ("us", "eu")
    )
    return Registry(regions, tuple(region.local_prefix for region in regions))


def _write(app: App) -> list[str]:
    store = app.open_store("s3://bench-us")
    names = [f"table/data/{number:05}.parquet" for number in range(len(SIZES))]
    for name, size in zip(names, SIZES, strict=True):
        store.put(name, os.urandom(size), Create())
    return names


@contextmanager
def _app() -> Iterator[App]:
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
    folder.chmod(0o711)
    try:
        endpoint = devservices.up(["s3"], folder, parent_bound=True)["s3"]
        for region in ("us", "eu"):
            devservices.create_bucket(endpoint, f"bench-{region}")
        environ = {
            "HEADWATER_STORAGE_S3_ENDPOINT": endpoint.url,
            "HEADWATER_STORAGE_S3_ACCESS_KEY_ID": str(endpoint.access_key_id),
            "HEADWATER_STORAGE_S3_SECRET_ACCESS_KEY": str(endpoint.secret_access_key),
        }
        yield App(settings.load(environ=environ))
    finally:
        devservices.down(folder, purge=True)
