"""The demo's regions on services: what is said to be read alone is read through a door that leads nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from headwater import devservices
from headwater.app import App
from headwater.cli.demo_regions import REGIONS
from headwater.cli.demo_services import services_site
from headwater.devservices import Endpoint
from headwater.kernel import settings


def test_each_region_is_read_through_its_own_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def up(services: Sequence[str], *_: object, **__: object) -> Mapping[str, Endpoint]:
        asked.extend(services)
        log = tmp_path / "log"
        return {
            name: Endpoint(name, None, port, f"http://127.0.0.1:{port}", healthy=True, log=log)
            for port, name in enumerate(services, start=9000)
        }

    monkeypatch.setattr(devservices, "up", up)
    monkeypatch.setattr(devservices, "create_bucket", lambda *_: None)
    monkeypatch.setattr(devservices, "down", lambda *_, **__: ())
    with services_site(App(settings.load(environ={})), tmp_path) as site:
        ports = {region: 9000 + asked.index(f"s3@{region}") for region in REGIONS}
        assert {region: door["s3.endpoint"] for region, door in site.doors.items()} == {
            region: f"http://127.0.0.1:{port}" for region, port in ports.items()
        }
        assert site.variables["HEADWATER_STORAGE_S3_ENDPOINT"] not in {
            door["s3.endpoint"] for door in site.doors.values()
        }
