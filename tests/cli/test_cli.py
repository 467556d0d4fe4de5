"""The command as a person or a script meets it: output, exit codes, errors that say the way out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

import headwater
from headwater import __version__
from headwater.app import LAKE_MARKER, App
from headwater.cli.main import main
from headwater.devservices import Endpoint, create_bucket
from headwater.kernel import settings
from headwater.sequence.pins import Pins
from headwater.sequence.protocol import Sequencer
from headwater.storage.port import Overwrite, PutMode
from headwater.storage.wrapper import StoreWrapper
from tests.fixtures.engines import by_duckdb
from tests.fixtures.stores import BUCKET


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.out)
        return parsed


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path) -> Result:
        code: str | int | None = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Result(int(code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A folder with a namespace of five objects, made long ago."""
    folder = tmp_path / "store"
    sequencer = open_sequencer(folder)
    for _ in range(5):
        sequencer.update(lambda latest: b"%d" % (latest.id if latest else 0))
    for file in (folder / "manifest").iterdir():
        os.utime(file, (1_700_000_000, 1_700_000_000))
    return folder


def open_sequencer(folder: Path) -> Sequencer:
    return App(settings.load(environ={})).open_sequencer(str(folder), "manifest")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def ids(folder: Path) -> list[int]:
    return [each.id for each in open_sequencer(folder).listing()]


class TestShow:
    def test_text(self, run: Run, history: Path) -> None:
        result = run("sequence", "show", history, "manifest")
        assert result.code == 0
        lines = result.out.splitlines()
        assert lines[0].split() == ["latest", "5"]
        assert lines[1].split() == ["boundary", "0"]
        assert [line.split()[:2] for line in lines[4:]] == [[str(n), "live"] for n in range(1, 5)] + [["5", "latest"]]

    def test_json(self, run: Run, history: Path) -> None:
        sequencer = open_sequencer(history)
        pin = Pins(sequencer).pin(sequencer.read(2), ttl=timedelta(hours=1), holder="ann")
        shown = run("sequence", "show", history, "manifest", "--json").json()
        assert list(shown) == ["namespace", "suffix", "boundary", "latest", "objects", "pins"]
        assert shown["suffix"] == ".manifest"
        assert shown["latest"] == 5
        pinned = {"pin": pin.pin.pin, "holder": "ann", "granted": True, "expires_at": pin.pin.expires_at.isoformat()}
        [record] = shown["pins"]
        assert len(record.pop("attempt")) == 26
        assert record == {"id": 2, "writer": pin.writer, "pins": [pinned]}
        assert "ann until" in run("sequence", "show", history, "manifest").out

    def test_an_empty_namespace(self, run: Run, tmp_path: Path) -> None:
        result = run("sequence", "show", tmp_path / "nothing", "manifest")
        assert result.code == 0
        assert result.out.split() == ["latest", "-", "boundary", "0"]
        assert "there is no object of manifest" in result.err
        assert not (tmp_path / "nothing").exists()

    def test_it_changes_nothing(self, run: Run, history: Path) -> None:
        before = tree(history)
        run("sequence", "show", history, "manifest")
        assert tree(history) == before


class TestCollect:
    def test_it_collects(self, run: Run, history: Path) -> None:
        result = run("sequence", "collect", history, "manifest", "--min-age", "1h")
        assert result.code == 0
        assert result.out.splitlines() == ["boundary  0 -> 4", "objects   4 deleted, 0 pinned"]
        assert ids(history) == [5]

    def test_a_dry_run_changes_nothing(self, run: Run, history: Path) -> None:
        before = tree(history)
        planned = run("sequence", "collect", history, "manifest", "--min-age", "1h", "--dry-run", "--json")
        assert tree(history) == before
        done = run("sequence", "collect", history, "manifest", "--min-age", "1h", "--json")
        assert {**planned.json(), "dry_run": False} == done.json()
        assert done.json() == {
            "namespace": "manifest",
            "dry_run": False,
            "latest": 5,
            "boundary_before": 0,
            "boundary_after": 4,
            "deleted": [1, 2, 3, 4],
            "pinned": [],
        }

    @pytest.mark.parametrize("where", [".", "..", "../.."])
    def test_a_lake_is_refused(self, run: Run, history: Path, where: str) -> None:
        marker = (history / where).resolve() / LAKE_MARKER
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.write_text("{}")
        try:
            result = run("sequence", "collect", history, "manifest", "--min-age", "0s")
            assert result.code == 4
            assert "belongs to the lake" in result.err
            assert "headwater reclaim" in result.err
            assert ids(history) == [1, 2, 3, 4, 5]
        finally:
            marker.unlink()

    def test_a_link_into_a_lake_is_refused(self, run: Run, history: Path, tmp_path: Path) -> None:
        marker = tmp_path / LAKE_MARKER
        marker.parent.mkdir(parents=True)
        marker.write_text("{}")
        (tmp_path.parent / f"{tmp_path.name}-link").symlink_to(history)
        link = tmp_path.parent / f"{tmp_path.name}-link"
        try:
            assert run("sequence", "collect", link, "manifest", "--min-age", "0s").code == 4
            assert ids(history) == [1, 2, 3, 4, 5]
        finally:
            link.unlink()

    def test_min_age_is_required(self, run: Run, history: Path) -> None:
        assert run("sequence", "collect", history, "manifest").code == 2
        assert ids(history) == [1, 2, 3, 4, 5]


@pytest.mark.services
def test_a_lake_on_s3_is_refused(run: Run, versitygw: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    create_bucket(versitygw, BUCKET)
    environ = {
        "HEADWATER_STORAGE_S3_ENDPOINT": versitygw.url,
        "HEADWATER_STORAGE_S3_ACCESS_KEY_ID": str(versitygw.access_key_id),
        "HEADWATER_STORAGE_S3_SECRET_ACCESS_KEY": str(versitygw.secret_access_key),
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    app = App(settings.load(environ=environ))
    root = f"s3://{BUCKET}/cli/lake"
    sequencer = app.open_sequencer(f"{root}/tables/t", "metadata", suffix=".metadata.json")
    sequencer.update(lambda _: b"1")
    sequencer.update(lambda _: b"2")
    app.open_store(root).put(LAKE_MARKER, b"{}", Overwrite())
    result = run("sequence", "collect", f"{root}/tables/t", "metadata", "--min-age", "0s")
    assert result.code == 4, result.err
    assert root in result.err
    shown = run("sequence", "show", f"{root}/tables/t", "metadata", "--json").json()
    assert shown["latest"] == 2
    assert versitygw.secret_access_key is not None
    assert versitygw.secret_access_key not in result.out + result.err


BAD: Sequence[tuple[list[str], int, str]] = [
    (["sequence", "show", "ftp://x/y", "manifest"], 2, "unknown scheme 'ftp'"),
    (["sequence", "show", "STORE", "a/b"], 2, "'a/b' cannot name a namespace"),
    (["sequence", "show", "STORE", ".."], 2, "'..' cannot name a namespace"),
    (["sequence", "collect", "STORE", "a/../b", "--min-age", "1h"], 2, "cannot name a namespace"),
    (["sequence", "collect", "STORE", "manifest", "--min-age", "soon"], 2, "'soon' is not a duration"),
    (["sequence", "collect", "STORE", "manifest", "--min-age", "-1h"], 2, "-1h"),
    (["sequence", "show", "s3:/bucket", "manifest"], 2, "has no bucket"),
    (["sequence", "show", "s3://[x/", "manifest"], 2, "is not a URL"),
    (["sequence", "show", "file:///%00", "manifest"], 2, "names no store"),
    (["sequence", "collect", "STORE/gc", "manifest.pins", "--min-age", "0s"], 2, "cannot name a namespace"),
    (["sequence", "show"], 2, "Missing argument"),
    (["nonsense"], 2, "No such command"),
    (["--settings", "nowhere.toml", "sequence", "show", "STORE", "manifest"], 2, "nowhere.toml does not exist"),
    (["devservices", "up", "--only", "postgras"], 2, "postgres"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), BAD)
def test_bad_input(run: Run, history: Path, arguments: list[str], code: int, message: str) -> None:
    before = tree(history)
    result = run(*[each.replace("STORE", str(history)) for each in arguments])
    assert result.code == code
    assert message in result.err
    assert tree(history) == before


@pytest.mark.parametrize("content", [b"x", b"-1", b"4\n", b"18446744073709551616", b""])
@pytest.mark.parametrize("command", ["show", "collect"])
def test_a_bad_boundary_is_named_and_left_alone(run: Run, history: Path, content: bytes, command: str) -> None:
    (history / "gc").mkdir()
    (history / "gc" / "manifest.boundary").write_bytes(content)
    before = tree(history)
    age = ["--min-age", "0s"] if command == "collect" else []
    result = run("sequence", command, history, "manifest", *age)
    assert result.code == 1
    assert "gc/manifest.boundary is not a boundary" in result.err
    assert tree(history) == before


def test_a_bad_object_name_is_named(run: Run, history: Path) -> None:
    (history / "manifest" / "notes.txt").write_text("?")
    result = run("sequence", "collect", history, "manifest", "--min-age", "0s")
    assert result.code == 1
    assert "manifest/notes.txt" in result.err
    assert len(ids_on_disk(history)) == 6


def ids_on_disk(folder: Path) -> list[str]:
    return [path.name for path in (folder / "manifest").iterdir()]


def test_a_secret_in_the_input_is_not_repeated(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("https://user:hunter2@host/x", "s3://key:hunter2@bucket", "https://hunter2@host/x"):
        for extra in ([], ["--json"]):
            result = run("sequence", "show", url, "manifest", *extra)
            assert result.code == 2
            assert "hunter2" not in result.out + result.err
    monkeypatch.setenv("HEADWATER_DATABASE", "postgresql://ann:hunter2@127.0.0.1:1/x")
    result = run("doctor", "--json")
    assert "hunter2" not in result.out + result.err


def test_usage_errors_as_json(run: Run) -> None:
    result = run("sequence", "show", "--json")
    assert result.code == 2
    assert json.loads(result.err)["kind"] == "Usage"


def test_errors_as_json(run: Run, history: Path) -> None:
    result = run("sequence", "show", "ftp://x", "manifest", "--json")
    error = json.loads(result.err)
    assert error["kind"] == "InvalidUrl"
    assert error["scheme"] == "ftp"
    assert result.out == ""


def test_errors_of_the_system_as_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(App, "open_lake", full)
    result = run("tables", "lake", "--json")
    assert (result.code, json.loads(result.err)["error"]) == (1, "[Errno 28] No space left on device")
    assert run("tables", "lake").err == "error: [Errno 28] No space left on device\n"


def test_an_unreachable_store_is_unavailable(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_STORAGE_S3_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("HEADWATER_STORAGE_RETRY_ATTEMPTS", "2")
    monkeypatch.setenv("HEADWATER_STORAGE_S3_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("HEADWATER_STORAGE_S3_SECRET_ACCESS_KEY", "hunter2")
    result = run("sequence", "show", "s3://bucket", "manifest")
    assert result.code == 5
    assert "s3://bucket" in result.err
    assert "hunter2" not in result.err


class TestDoctor:
    def test_a_folder_is_fit(self, run: Run, tmp_path: Path) -> None:
        result = run("doctor", tmp_path / "store", "--rounds", "5", "--writers", "8", "--json")
        checks = {each["name"]: each for each in result.json()["checks"]}
        assert result.code == 0
        assert checks["race"]["detail"] == "8 writers, 5 rounds, one winner each"
        assert checks["compare-and-swap"]["ok"]
        assert not (tmp_path / "store").exists()

    def test_the_services_that_the_settings_name(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADWATER_DATABASE", f"sqlite:///{tmp_path}/state.db")
        monkeypatch.setenv("HEADWATER_COORDINATION", "etcd+http://127.0.0.1:1")
        result = run("doctor", "--json")
        checks = {each["name"]: each for each in result.json()["checks"]}
        assert checks["database"]["ok"]
        assert not checks["coordination"]["ok"]
        assert "127.0.0.1:1" in checks["coordination"]["detail"]
        assert result.code == 1

    def test_the_machine_alone(self, run: Run) -> None:
        result = run("doctor")
        assert "python" in result.out

    def test_a_store_that_does_not_compare_is_unsafe(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Liar(StoreWrapper):
            def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
                return self._inner.put(path, data, Overwrite())

        honest = App.open_store
        monkeypatch.setattr(App, "open_store", lambda self, url: Liar(honest(self, url)))
        result = run("doctor", tmp_path / "store", "--rounds", "2", "--writers", "4")
        assert result.code == 4
        assert "lacks create-if-absent, update-if-match" in result.out
        assert "2 with several winners" in result.out
        assert "is not safe for sequenced metadata" in result.err


def test_help_names_the_exit_codes(run: Run) -> None:
    result = run("--help")
    assert result.code == 0
    assert "4 refused as unsafe" in " ".join(result.out.split())


def test_version(run: Run) -> None:
    assert run("--version").out == f"headwater, version {__version__}\n"


def test_as_a_process(history: Path) -> None:
    """Through the interpreter, with logs as JSON and a failpoint that does not exist."""
    command = [sys.executable, "-m", "headwater", "--log-format", "json", "--log-level", "info"]
    command += ["sequence", "collect", str(history), "manifest", "--min-age", "1h"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0
    assert json.loads(done.stderr)["message"] == "namespace collected"
    environ = {**os.environ, "HEADWATER_FAILPOINTS": "sequence.nonsense=kill"}
    refused = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert refused.returncode == 2
    assert "there is no failpoint 'sequence.nonsense'" in refused.stderr


@pytest.mark.spark
@pytest.mark.java
def test_the_demo_tells_the_truth(tmp_path: Path) -> None:
    stage = tmp_path / "stage"
    command = [sys.executable, "-m", "headwater", "demo", "--json", "--transfers", "4", "--dir", str(stage)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    bank, control = told["bank"], told["control"]
    assert bank["wrong_audits"] == 0 < bank["audits"]
    assert control["wrong_audits"] > 0
    assert (bank["at_the_end"]["balances"], bank["at_the_end"]["halves"]) == (800, 0)
    assert sum(teller["made"] + teller["refused"] for teller in bank["tellers"]) == 12
    # Back, or forward if the head at which it was killed happened to be its last.
    assert {"rolled back", "rolled forward"} & {each["outcome"] for each in bank["recoveries"] if each["of"] == "Ted"}
    assert told["spark"] == {"balances": 800, "entries": 0}
    regions = told["regions"]
    assert set(regions["audits"]) == {"us-east", "eu-central", "asia-south"}
    assert set(regions["wrong_audits"].values()) == {0}
    assert all(each == {"balances": 800, "entries": 0} for each in regions["alone"].values())
    assert set(regions["alone"]) == set(regions["audits"])
    assert (regions["killed"]["after"], regions["killed"]["state"]) == ("plan", "done")
    assert all(list(lags.values()) == sorted(lags.values()) for lags in regions["lag_seconds"].values())
    # The same books, as DuckDB reads them by itself.
    lake = headwater.open(str(stage / "bank"), read_only=True)
    entries = [by_duckdb(str(lake.table(name).location)) for name in ("entries", "transfers")]
    assert len(entries[0]) == 2 * len(entries[1]) > 0
    assert sum(amount for _, _, amount in entries[0]) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    """The demo is asked to end while its tellers are at work: neither they nor the stage stay."""
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", DEMO_THAT_WAITS]
    demo = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert demo.stdout is not None
    writer = int(demo.stdout.readline())
    demo.send_signal(number)
    assert demo.wait(timeout=30) == 128 + number
    demo.stdout.close()
    assert not psutil.pid_exists(writer) or psutil.Process(writer).status() == psutil.STATUS_ZOMBIE
    assert list(tmp_path.glob("headwater-demo-*")) == []


DEMO_THAT_WAITS = """
import time
from headwater.cli import demo
from headwater.cli.main import main

tellers = []

def enter(self):
    tellers.append(self.pid)
    return self

def wait(lake):
    print(tellers[0], flush=True)  # not before: who is asked to end while it enters leaves what it has not entered
    time.sleep(60)

demo._Teller.__enter__ = enter
demo.audit = wait
main(["demo", "--json"])
"""
