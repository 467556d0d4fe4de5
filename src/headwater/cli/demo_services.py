"""The regions of the demo on real services: S3, PostgreSQL and Nessie on loopback, and rclone between the buckets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from headwater import devservices
from headwater.app import App
from headwater.cli.demo_regions import REGIONS, Site
from headwater.devservices import Endpoint
from headwater.kernel.settings import load

_BUCKET, _LAKE = "headwater-demo", "s3://headwater-demo/bank"


@contextmanager
def services_site(app: App, folder: Path) -> Iterator[Site]:
    """The services of three regions, started in `folder`, and gone with the block."""
    doors = {region: f"s3@{region}" for region in REGIONS}
    names = ("postgres", "s3", "nessie", *devservices.regional_names(REGIONS), *doors.values())
    try:
        found = devservices.up(names, folder, parent_bound=True, clock=app.clock, randomness=app.randomness)
        devservices.create_bucket(found["s3"], _BUCKET, app.clock)
        variables = {**_storage(found["s3"]), "HEADWATER_DATABASE": found["postgres"].url}
        yield Site(
            replace(app, settings=load(environ=variables)),
            _lake_url(found["nessie"]),
            {region: f"s3://{devservices.bucket_of(region)}/" for region in REGIONS},
            variables,
            {region: {"HEADWATER_SYNC_CATALOG": _lake_url(found[f"nessie@{region}"])} for region in REGIONS},
            {region: _door(found[name]) for region, name in doors.items()},
        )
    finally:
        devservices.down(folder, purge=True, clock=app.clock)


def _lake_url(nessie: Endpoint) -> str:
    return f"nessie+{nessie.url}/api/v2?warehouse={_LAKE}"


def _storage(s3: Endpoint) -> dict[str, str]:
    return {
        "HEADWATER_STORAGE_S3_ENDPOINT": s3.url,
        "HEADWATER_STORAGE_S3_ACCESS_KEY_ID": s3.access_key_id or "",
        "HEADWATER_STORAGE_S3_SECRET_ACCESS_KEY": s3.secret_access_key or "",
    }


def _door(s3: Endpoint) -> dict[str, str]:
    """How PyIceberg reads one region's bucket, and no other."""
    return {
        "s3.endpoint": s3.url,
        "s3.access-key-id": s3.access_key_id or "",
        "s3.secret-access-key": s3.secret_access_key or "",
        "s3.region": "us-east-1",
    }
