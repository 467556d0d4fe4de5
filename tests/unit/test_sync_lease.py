"""The right to sync a region: nothing is renewed once it was given back, and who loses it asks again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.app import App
from headwater.cli import sync as commands
from headwater.coordination import Held, acquire
from headwater.kernel import settings
from headwater.kernel.errors import UsageError
from headwater.kernel.randomness import seeded
from headwater.sync.lease import RegionLease
from headwater.sync.runs.model import RunLostError


def test_the_block_ends_when_no_beat_is_under_way(tmp_path: Path) -> None:
    """A run gives its claims back right after: a beat that came later would take the region for lost."""
    app = App(settings.load(environ={"HEADWATER_DATABASE": f"sqlite:///{tmp_path / 'state.db'}"}))
    held = acquire(app.open_coordination(), "sync/eu", "a test", 60.0)
    assert isinstance(held, Held)
    lease = RegionLease(held, 0.03)
    in_beat, go_on = threading.Event(), threading.Event()
    renewed: list[str] = []

    def renew() -> None:
        in_beat.set()
        go_on.wait(10)
        renewed.append("claims")

    lease.start()
    with lease.renewing(renew):
        in_beat.wait(10)
        threading.Timer(0.2, go_on.set).start()
    found = list(renewed)
    go_on.set()
    lease.stop()
    assert found == ["claims"]


def test_who_watches_goes_on_when_the_region_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def catch_up(app: App, lake: str, region: str, *_: object, **__: object) -> None:
        tries.append(region)
        raise RunLostError(region, 1, 2) if len(tries) < 3 else UsageError("enough")

    monkeypatch.setattr(commands, "_catch_up", catch_up)
    app = App(settings.load(environ={"HEADWATER_SYNC_WATCH_SECONDS": "0"}), randomness=seeded("a test"))
    watched = CliRunner().invoke(commands.sync, ["run", "lake", "--region", "eu", "--watch"], obj=app)
    assert isinstance(watched.exception, UsageError)
    assert tries == ["eu", "eu", "eu"]
    once = CliRunner().invoke(commands.sync, ["run", "lake", "--region", "eu"], obj=app)
    assert isinstance(once.exception, UsageError)
