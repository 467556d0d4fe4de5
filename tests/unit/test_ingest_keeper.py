"""Who keeps the time: the lease is taken when it is free, renewed, lost, given back. And nodes open whole or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.coordination import DatabaseCoordination
from headwater.database import Database, open_database
from headwater.ingest import opening
from headwater.ingest.config import NodeConfig, load_config
from headwater.ingest.index import MainIndex, PrimaryIndex
from headwater.ingest.opening import Opened
from headwater.ingest.service import running as running_module
from headwater.ingest.service.keeper import NotTheHolderError, TimeKeeper
from headwater.ingest.service.running import running
from headwater.ingest.service.server import NodeServer
from headwater.ingest.timestamps import FencedError, TakenError, TimestampService, open_timestamps
from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import RefusedError, UnavailableError, UsageError
from tests.fixtures.lakes import LakeWorld
from tests.unit.test_ingest_fresh import NO_ROWS, SCHEMA, free_ports


class Keepers:
    """Two nodes that want to keep one time."""

    def __init__(self, database: Database, clock: ManualClock) -> None:
        self.clock = clock
        self.opened: list[str] = []
        self.a, self.b = (TimeKeeper(self._taking(database, name), 10.0) for name in ("host:1", "host:2"))

    def _taking(self, database: Database, name: str) -> Any:
        def take() -> TimestampService:
            self.opened.append(name)
            return open_timestamps(
                database, DatabaseCoordination(database), "x", name, clock=self.clock, lease_seconds=10.0
            )

        return take


@pytest.fixture
def keepers(tmp_path: Path) -> Iterator[Keepers]:
    clock = ManualClock()
    with closing(open_database(tmp_path / "state.db", clock=clock)) as database:
        yield Keepers(database, clock)


def test_nothing_is_taken_before_the_first_turn(keepers: Keepers) -> None:
    assert not keepers.opened
    with pytest.raises(UnavailableError, match="not asked yet"):
        keepers.a.service()


def test_one_keeps_the_time_and_the_other_names_it(keepers: Keepers) -> None:
    keepers.a.turn()
    keepers.b.turn()
    assert keepers.a.service().watermarks().high == 1
    with pytest.raises(NotTheHolderError, match="kept by host:1") as caught:
        keepers.b.service()
    assert caught.value.fields["holder"] == "host:1"


def test_turns_hold_the_lease(keepers: Keepers) -> None:
    keepers.a.turn()
    for _ in range(12):
        keepers.clock.advance(timedelta(seconds=2.5))
        keepers.a.turn()
        keepers.b.turn()
    assert keepers.a.service().watermarks().high == 1
    assert keepers.opened.count("host:1") == 1
    with pytest.raises(NotTheHolderError):
        keepers.b.service()


def test_a_lost_lease_closes_it_and_the_next_goes_on(keepers: Keepers) -> None:
    keepers.a.turn()
    held = keepers.a.service()
    held.keep_alive(7)
    keepers.clock.advance(timedelta(seconds=30))
    keepers.b.turn()
    assert keepers.b.service().watermarks().high == 7
    with pytest.raises(FencedError):
        held.watermarks()
    keepers.a.turn()
    with pytest.raises(NotTheHolderError, match="kept by host:2"):
        keepers.a.service()


def test_one_that_stops_gives_it_back_at_once(keepers: Keepers) -> None:
    keepers.a.turn()
    keepers.a.stop()
    with pytest.raises(UnavailableError, match="stopping"):
        keepers.a.service()
    keepers.b.turn()
    assert keepers.b.service().watermarks().high == 1


def test_a_renewal_that_is_not_answered_loses_nothing(keepers: Keepers, monkeypatch: pytest.MonkeyPatch) -> None:
    keepers.a.turn()
    held = keepers.a.service()

    def unavailable() -> None:
        raise UnavailableError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(held, "keep_lease", unavailable)
        keepers.a.turn()
    assert keepers.a.service() is held
    keepers.clock.advance(timedelta(seconds=11))
    with pytest.raises(FencedError, match="has passed"):
        keepers.a.service().watermarks()


def test_a_holder_that_nobody_knows_is_not_named() -> None:
    """A caller would follow the name, and call whoever is not there."""

    def taken() -> TimestampService:
        raise TakenError("x", None)

    keeper = TimeKeeper(taken, 10.0)
    keeper.turn()
    with pytest.raises(UnavailableError, match="another node") as refused:
        keeper.service()
    assert not isinstance(refused.value, NotTheHolderError)


def test_a_coordinator_that_is_away_is_asked_again() -> None:
    def take() -> TimestampService:
        raise UnavailableError("no coordinator", hint="start it")

    keeper = TimeKeeper(take, 10.0)
    keeper.turn()
    with pytest.raises(UnavailableError, match=r"nobody is known to keep the time: no coordinator \(start it\)"):
        keeper.service()


# A node opens and runs whole, or nothing of it is left.


@pytest.fixture
def config(lake: LakeWorld, tmp_path: Path) -> NodeConfig:
    lake.create("t", NO_ROWS, schema=SCHEMA)
    (port,) = free_ports(1)
    (tmp_path / "topology.toml").write_text(
        f'virtual_nodes = 1\n[[nodes]]\nname = "a"\nhost = "127.0.0.1"\nport = {port}\nvirtual_nodes = [0]\n'
    )
    (tmp_path / "node.toml").write_text(
        f'name = "a"\nlake = "{lake.url}"\ntopology = "topology.toml"\ndirectory = "a"\ntables = ["t"]\n'
    )
    return load_config(tmp_path / "node.toml")


def boom(*_: object, **__: object) -> Any:
    raise RuntimeError("boom")


@pytest.mark.parametrize("part", ["FileTable", "shape_of", "MainIndex.open", "PrimaryIndex.open", "Node", "keeper_of"])
def test_a_part_that_cannot_be_opened_leaves_nothing_open(
    part: str, lake: LakeWorld, config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, opened = [], []
    for kind in (MainIndex, PrimaryIndex):
        name = kind.__name__
        real_open, real_close = kind.open, kind.close

        def open_(*args: Any, real: Any = real_open, name: str = name, **kw: Any) -> Any:
            found = real(*args, **kw)
            opened.append(name)
            return found

        def close(self: Any, real: Any = real_close, name: str = name) -> None:
            closed.append(name)
            real(self)

        monkeypatch.setattr(kind, "open", open_)
        monkeypatch.setattr(kind, "close", close)
    with monkeypatch.context() as patch:
        target, _, attribute = part.rpartition(".")
        patch.setattr(getattr(opening, target) if target else opening, attribute, boom)
        with pytest.raises(RuntimeError, match="boom"), lake.app.open_node(config):
            raise AssertionError
    assert sorted(closed) == sorted(opened)
    opened.clear()
    with lake.app.open_node(config) as whole:
        assert isinstance(whole, Opened)
    assert opened == ["MainIndex", "PrimaryIndex"]


@pytest.mark.parametrize("part", ["node.start", "server", "server.start", "keeper.start"])
def test_what_cannot_run_leaves_nothing_running(
    part: str, lake: LakeWorld, config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake.app.open_node(config) as opened:
        address = opened.node.topology.node("a").address
        with monkeypatch.context() as patch:
            match part:
                case "node.start":
                    patch.setattr(opened.node, "start", boom)
                case "server":
                    patch.setattr(running_module, "NodeServer", boom)
                case "server.start":
                    patch.setattr(NodeServer, "start", boom)
                case _:
                    patch.setattr(opened.keeper, "start", boom)
            with (
                pytest.raises(RuntimeError, match="boom"),
                running(opened.node, opened.keeper, address, grace_seconds=0),
            ):
                raise AssertionError
        assert opened.node._thread is None or not opened.node._thread.is_alive()
        assert opened.keeper._thread is None
        # The port is free again.
        other = config.model_copy(update={"directory": config.directory / "other"})
        with (
            lake.app.open_node(other) as again,
            running(again.node, again.keeper, address, grace_seconds=0) as port,
        ):
            assert address.endswith(f":{port}")


def test_a_port_that_is_taken_is_said(lake: LakeWorld, config: NodeConfig) -> None:
    with lake.app.open_node(config) as opened:
        address = opened.node.topology.node("a").address
        with running(opened.node, opened.keeper, address, grace_seconds=0):
            other = config.model_copy(update={"directory": config.directory / "other"})
            with (
                lake.app.open_node(other) as second,
                pytest.raises(UnavailableError, match="nothing can listen at"),
                running(second.node, second.keeper, address, grace_seconds=0),
            ):
                raise AssertionError


def test_two_tables_of_one_number_are_refused(
    lake: LakeWorld, config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create("u", pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.string())}), schema=SCHEMA)
    monkeypatch.setattr(opening, "table_id_of", lambda _: 7)
    both = config.model_copy(update={"tables": ("t", "u")})
    with pytest.raises(RefusedError, match="u has the number 7, and so has"), lake.app.open_node(both):
        raise AssertionError


def test_one_table_under_two_names_is_refused(lake: LakeWorld, config: NodeConfig) -> None:
    both = config.model_copy(update={"tables": ("t", "default.t")})
    with pytest.raises(UsageError, match=r"t and default\.t are one table"), lake.app.open_node(both):
        raise AssertionError


@pytest.mark.parametrize("name", ["taken", "taken/below", "a\0b"])
def test_a_folder_that_cannot_be_made_is_said(lake: LakeWorld, config: NodeConfig, tmp_path: Path, name: str) -> None:
    (tmp_path / "taken").write_text("a file")
    wrong = config.model_copy(update={"directory": tmp_path / name})
    with pytest.raises(UsageError, match="of the index cannot be made"), lake.app.open_node(wrong):
        raise AssertionError


def test_the_time_is_given_away_before_calls_end(
    lake: LakeWorld, config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stays connected for the whole grace must not keep the time from the other nodes."""
    ended = list[str]()
    for kind in (TimeKeeper, NodeServer):
        stop = kind.stop

        def noted(self: Any, *args: Any, stop: Any = stop, name: str = kind.__name__) -> None:
            ended.append(name)
            stop(self, *args)

        monkeypatch.setattr(kind, "stop", noted)
    with lake.app.open_node(config) as opened, running(opened.node, opened.keeper, "127.0.0.1:0"):
        pass
    assert ended == ["TimeKeeper", "NodeServer"]


def test_a_directory_has_one_process(lake: LakeWorld, config: NodeConfig) -> None:
    other = pytest.raises(RefusedError, match="another process has the folder")
    with lake.app.open_node(config), other, lake.app.open_node(config):
        raise AssertionError
    with lake.app.open_node(config):
        pass


def test_a_directory_that_cannot_be_locked_is_said(lake: LakeWorld, config: NodeConfig) -> None:
    (config.directory / "node.lock").mkdir(parents=True)
    with pytest.raises(UsageError, match="of the index cannot be made"), lake.app.open_node(config):
        raise AssertionError


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[time]\nlease_seconds = 0\n", "time.lease_seconds"),
        ("[service]\ncalls = 0\n", "service.calls"),
        ("[nothing]\n", "nothing"),
        ("[buffer]\nflush_seconds = inf\n", "buffer.flush_seconds"),
        ("[service]\nrequest_bytes = 4000000000\n", "service.request_bytes"),
        ("other = " + "9" * 5_000, "cannot be read"),
        ("other = " + "[" * 100_000, "cannot be read"),
        ("[service]\ncalls = true\n", "service.calls"),
        ('[buffer]\nblock_rows = "9"\n', "buffer.block_rows"),
    ],
    ids=lambda each: each[:20],
)
def test_a_wrong_file_names_its_place(tmp_path: Path, config: NodeConfig, text: str, says: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text((tmp_path / "node.toml").read_text() + text)
    with pytest.raises(UsageError, match=says):
        load_config(file)
