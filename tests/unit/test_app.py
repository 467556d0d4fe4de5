"""The composition root: which backend a URL and the settings lead to."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.app import App
from headwater.kernel.errors import UsageError
from headwater.kernel.settings import load
from headwater.storage.metered import API_CALLS
from headwater.storage.port import Create


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWATER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_requests_are_metered(tmp_path: Path) -> None:
    app = App(load(environ={}))
    app.open_store(str(tmp_path)).put("x", b"1", Create())
    assert app.metrics.value(API_CALLS, region="local", op="put") == 1


def test_a_folder_lake_holds_its_own_state(home: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with App(load(environ={})).open_database(str(lake)) as database, database.read():
        pass
    assert (lake / "_headwater" / "state.db").exists()
    assert not home.exists()


def test_other_state_lives_at_home(home: Path) -> None:
    app = App(load(environ={}))
    for lake in (None, "s3://bucket/a", "s3a://bucket/a/", "s3://bucket/b"):
        with app.open_database(lake) as database, database.read():
            pass
    assert len(list(home.glob("*.db"))) == 3


def test_coordination_is_on_the_database_unless_told_otherwise(home: Path) -> None:
    coordination = App(load(environ={})).open_coordination()
    assert coordination.get("key") is None
    coordination.close()
    assert (home / "state.db").exists()


def test_settings_choose(tmp_path: Path) -> None:
    app = App(load(environ={"HEADWATER_DATABASE": f"sqlite:///{tmp_path}/own.db"}))
    with app.open_database("anything") as database, database.read():
        pass
    assert (tmp_path / "own.db").exists()
    with pytest.raises(UsageError):
        App(load(environ={"HEADWATER_DATABASE": "oracle://x"})).open_database()
