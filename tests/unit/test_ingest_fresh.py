"""Queries over what two real nodes of a real lake hold, beside a plain dictionary; and how they refuse."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    IsNull,
    LessThan,
    Or,
    Reference,
)
from pyiceberg.expressions.literals import (
    BooleanLiteral,
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    LongLiteral,
    TimestampLiteral,
)
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from headwater.app import App
from headwater.catalog.model import TableKey
from headwater.ingest.client import NodeClient, Times
from headwater.ingest.config import load_config
from headwater.ingest.fresh import protocol
from headwater.ingest.fresh.decide import fed_tables, pushed, refuse_other_columns
from headwater.ingest.fresh.merging import merged
from headwater.ingest.fresh.model import NodeNotReadyError, NodesDifferError, NodeState, ReadLostError
from headwater.ingest.keys import encode
from headwater.ingest.opening import Opened
from headwater.ingest.scan.model import ScanRequest
from headwater.ingest.service.ipc import bytes_of
from headwater.ingest.service.running import running
from headwater.ingest.timestamps.model import Transaction, Watermarks
from headwater.ingest.topology import Topology
from headwater.kernel.errors import HeadwaterError, RefusedError, UnavailableError, UsageError
from headwater.rpc.ingest.v1 import ingest_pb2 as pb
from headwater.tables.operations import append
from tests.fixtures.lakes import LakeWorld

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "v", StringType(), required=False),
    identifier_field_ids=[1],
)
NO_ROWS = pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.string())})


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(socket.socket())) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@dataclass
class Fed:
    """A lake with the fed tables `t` and `u` and the plain table `p`, and two nodes that are READY."""

    lake: LakeWorld
    file: Path
    topology: Topology
    opened: dict[str, Opened]
    stops: dict[str, ExitStack]

    def write(self, timestamp: int, table: str = "t", **parts: list[dict[str, Any]]) -> None:
        """A transaction of the source: begun, sent to the nodes of its keys, committed."""
        with Times([node.address for node in self.topology.nodes]) as times:
            begun = times.call("BeginTransaction", pb.BeginTransactionRequest(timestamp=timestamp))
            self.send(timestamp, table, **parts)
            times.call("CommitTransaction", pb.CommitTransactionRequest(transaction_id=begun.transaction_id))

    def send(self, timestamp: int, table: str = "t", **parts: list[dict[str, Any]]) -> None:
        shape = self.opened["a"].node.table(table)
        key = pa.schema([shape.schema.field("id")])
        for node in self.topology.nodes:
            updates: dict[int, pb.TableUpdate] = {}
            for part, rows in parts.items():
                batch = pa.RecordBatch.from_pylist(rows, schema=key if part == "deletes" else shape.schema)
                homes = self.topology.virtual_nodes_of(encode(batch, ("id",)))
                for home in set(np.unique(homes).tolist()) & set(node.virtual_nodes):
                    update = updates.setdefault(
                        home, pb.TableUpdate(table=table, virtual_node=home, key_timestamp=timestamp)
                    )
                    setattr(update, part, bytes_of(batch.filter(pa.array(homes == home))))
            with NodeClient(node.address) as client:
                client.update(pb.UpdateRecordRequest(timestamp=timestamp, updates=updates.values()))

    def ask(self, sql: str) -> list[dict[str, Any]]:
        lake = self.lake.lake
        with self.lake.app.open_fresh(self.file) as over, lake.stream(sql, laid_over=over) as reader:
            found: list[dict[str, Any]] = reader.read_all().to_pylist()
            return found


@pytest.fixture
def fed(lake: LakeWorld, tmp_path: Path) -> Iterator[Fed]:
    for name in ("t", "u"):
        lake.create(name, NO_ROWS, schema=SCHEMA)
    lake.create("p", pa.table({"id": [1, 2], "w": [10, 20]}))
    ports = free_ports(2)
    file = tmp_path / "topology.toml"
    file.write_text(
        "virtual_nodes = 4\n"
        + "".join(
            f'[[nodes]]\nname = "{name}"\nhost = "127.0.0.1"\nport = {port}\nvirtual_nodes = {owned}\n'
            for name, port, owned in (("a", ports[0], "[0, 1, 2]"), ("b", ports[1], "[3]"))
        )
    )
    topology = Topology.load(file)
    with ExitStack() as stack:
        opened, stops = {}, {}
        for node in topology.nodes:
            config = tmp_path / f"{node.name}.toml"
            config.write_text(
                f'name = "{node.name}"\nlake = "{lake.url}"\ntopology = "topology.toml"\n'
                f'directory = "{node.name}"\ntables = ["t", "u"]\n[buffer]\nflush_seconds = 3600\n'
            )
            mine = stops[node.name] = stack.enter_context(ExitStack())
            found = opened[node.name] = mine.enter_context(lake.app.open_node(load_config(config)))
            found.keeper.turn()
            mine.enter_context(running(found.node, found.keeper, node.address, grace_seconds=0.1))
            found.node.lifecycle.ready_for_tests()
        yield Fed(lake, file, topology, opened, stops)


def rows(count: int, value: str = "a") -> list[dict[str, Any]]:
    return [{"id": each, "v": value} for each in range(count)]


@pytest.mark.proves("ingest/fresh")
def test_all_nodes_at_one_timestamp_beside_the_lake(fed: Fed) -> None:
    fed.write(3, inserts=rows(40))
    fed.write(5, "u", inserts=rows(7, "u"))
    fed.opened["a"].node.flush()
    fed.write(8, deletes=[{"id": each} for each in range(10)])
    fed.send(9, inserts=[{"id": 1000, "v": "not committed yet"}])
    wanted = rows(40)[10:]
    assert all(len(each.node.streams()) >= 2 for each in fed.opened.values()), "both nodes hold a part"
    assert fed.ask("select * from t order by id") == wanted
    assert fed.ask("select v, count(*)::int n from t where id < 20 group by v") == [{"v": "a", "n": 10}]
    joined = fed.ask("select t.v, p.w from u join t using (v) right join p on true order by w")
    assert joined == [{"v": None, "w": 10}, {"v": None, "w": 20}]
    assert fed.ask("select count(*)::int n from u, p where u.id = p.id") == [{"n": 2}]
    of_the_lake = fed.lake.lake.query("select count(*)::int n from t").to_pylist()
    assert of_the_lake == [{"n": 0}], "nothing is published there yet"


def test_what_the_lake_has_of_a_fed_table_is_not_read_beside(fed: Fed) -> None:
    """The nodes hold all of it; what is published is a part of that, as it was."""
    fed.write(3, inserts=rows(4))
    published = pa.table({"id": [0, 1], "v": ["a", "a"]}, schema_of(fed))
    fed.lake.commit({"t": append(fed.lake.staging(), fed.lake.table("t"), published)})
    assert fed.lake.lake.query("select count(*)::int n from t").to_pylist() == [{"n": 2}]
    assert fed.ask("select * from t order by id") == rows(4)


def schema_of(fed: Fed) -> pa.Schema:
    return fed.opened["a"].node.table("t").schema


def test_a_read_lasts_as_long_as_its_query(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    fed.write(3, inserts=rows(4))
    holder = fed.opened["a"].keeper.service()
    ended: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(holder, "commit", ended.append)
        lake = fed.lake.lake
        with fed.lake.app.open_fresh(fed.file) as over, lake.stream("select * from t", laid_over=over) as reader:
            fed.send(9, deletes=[{"id": each} for each in range(4)])
            assert len(reader.read_all()) == 4
            assert not ended
        assert len(ended) == 1
    holder.commit(ended[0])


def test_the_read_transaction_is_proven_after_the_last_row(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    fed.write(3, inserts=rows(4))
    holder = fed.opened["a"].keeper.service()
    real = holder.begin

    def begin(*, read_only: bool = False, timestamp: int | None = None) -> Transaction:
        begun = real(read_only=read_only, timestamp=timestamp)
        if read_only:
            holder.commit(begun.id)
        return begun

    monkeypatch.setattr(holder, "begin", begin)
    with pytest.raises(ReadLostError, match="the read at 3 is over"):
        fed.ask("select * from t")


def test_a_read_ends_also_when_the_query_fails(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(fed.opened["a"].keeper.service(), "commit", ended.append)
    with pytest.raises(HeadwaterError):
        fed.ask("select nope from t")
    assert len(ended) == 1


def test_the_reader_is_kept_alive_while_it_scans(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    fed.write(3, inserts=rows(9))
    renewed: list[list[int]] = []
    service = fed.opened["a"].keeper.service()
    monkeypatch.setattr(service, "keep_alive", lambda _, reads: renewed.append(reads))
    monkeypatch.setattr(protocol._Reading, "renew_when_due", protocol._Reading.renew)
    fed.ask("select * from t")
    assert len(renewed) > 2


def test_what_is_not_ready_is_not_read(fed: Fed) -> None:
    fed.opened["b"].node.lifecycle.fail(RuntimeError("boom"))
    with pytest.raises(NodeNotReadyError, match="node b is failed") as caught:
        fed.ask("select * from t")
    assert caught.value.fields["node"] == fed.topology.node("b").address
    fed.stops["b"].close()
    with pytest.raises(NodeNotReadyError, match=r"node b at .* does not answer"):
        fed.ask("select * from t")


def test_another_topology_is_refused(fed: Fed) -> None:
    fed.file.write_text(fed.file.read_text().replace("[0, 1, 2]", "[0, 1]").replace("[3]", "[2, 3]"))
    with pytest.raises(NodesDifferError, match="runs with topology"):
        fed.ask("select * from t")


def test_no_topology_is_said(lake: LakeWorld) -> None:
    with pytest.raises(UsageError, match="no topology is named"), lake.app.open_fresh():
        raise AssertionError


def test_the_topology_of_the_settings(fed: Fed) -> None:
    app = App(fed.lake.app.settings.model_copy(update={"topology": str(fed.file)}))
    fed.write(3, inserts=rows(4))
    with app.open_fresh() as over, fed.lake.lake.stream("select count(*)::int n from t", laid_over=over) as reader:
        assert reader.read_all().to_pylist() == [{"n": 4}]


def test_the_time_is_asked_of_whoever_keeps_it(fed: Fed) -> None:
    first, second = (fed.topology.node(name).address for name in ("a", "b"))
    with NodeClient(second) as client, pytest.raises(RefusedError, match=f"kept by {first}") as caught:
        client.call(client.time.GetWatermarks, pb.GetWatermarksRequest())
    assert caught.value.fields["holder"] == first
    with Times([second]) as times:
        assert times.call("GetWatermarks", pb.GetWatermarksRequest()).high_watermark == 1
        assert times.holder == first
        fed.write(3, inserts=rows(2))
        fed.stops["a"].close()
        fed.opened["b"].keeper.turn()
        assert times.call("GetWatermarks", pb.GetWatermarksRequest()).high_watermark == 4
        assert times.holder == second


def test_a_time_that_nobody_keeps(fed: Fed) -> None:
    for stop in fed.stops.values():
        stop.close()
    with (
        Times([fed.topology.node("a").address], timeout_seconds=5) as times,
        pytest.raises(UnavailableError, match="nobody keeps the time"),
    ):
        times.call("GetWatermarks", pb.GetWatermarksRequest())


def test_nodes_fold_up_to_the_safe_timestamp_and_no_further(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node that does not keep the time asks the one that does; where nobody can say, nothing is folded."""
    fed.write(3, inserts=rows(40))
    fed.write(8, deletes=[{"id": each} for each in range(40)])
    node = fed.opened["b"].node
    wanted = [row for row in rows(40) if home_of(fed, row["id"]) == "b"]
    with NodeClient(fed.topology.node("b").address) as client:
        with monkeypatch.context() as patch:
            patch.setattr(fed.opened["a"].keeper.service(), "watermarks", lambda: Watermarks(9, 6))
            node.fold_what_is_safe()
        assert sorted(client.scan("t", 5).read_all()["id"].to_pylist()) == [row["id"] for row in wanted]
        with pytest.raises(RefusedError, match="below 5"):
            client.scan("t", 4).read_all()
        fed.stops["a"].close()
        fed.opened["b"].keeper.stop()
        node.fold_what_is_safe()
        assert len(client.scan("t", 5).read_all()) == len(wanted) > 0


def home_of(fed: Fed, key: int) -> str:
    (home,) = fed.topology.virtual_nodes_of(encode(pa.RecordBatch.from_pydict({"id": [key]}), ("id",)))
    return fed.topology.node_of(int(home)).name


STATE = NodeState("a", "host:1", "ready", "", frozenset({"t", "s.u"}))


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({}, None, ""),
        ({"state": "recovering"}, NodeNotReadyError, "node b is recovering"),
        ({"state": "unspecified"}, NodeNotReadyError, "node b is unspecified"),
        ({"topology_hash": "other"}, NodesDifferError, "runs with topology other"),
        ({"tables": frozenset({"t"})}, NodesDifferError, r"do not feed the same tables: s\.u"),
    ],
)
def test_nodes_make_a_whole(changes: dict[str, Any], error: type[HeadwaterError] | None, says: str) -> None:
    topology = Topology.parse(
        'virtual_nodes = 1\n[[nodes]]\nname = "a"\nhost = "h"\nport = 1\nvirtual_nodes = [0]\n', "file"
    )
    one = replace(STATE, topology_hash=topology.hash)
    states = [one, replace(one, **{"name": "b", **changes})]
    if error is None:
        assert fed_tables(topology, states) == {TableKey.parse("t"): "t", TableKey(("s",), "u"): "s.u"}
        return
    with pytest.raises(error, match=says):
        fed_tables(topology, states)


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


@pytest.mark.parametrize(
    ("scanned", "is_same"),
    [
        ([field("id", pa.int64(), 1)], True),
        ([field("id", pa.int64(), 2)], False),
        ([field("id", pa.int32(), 1)], False),
        ([field("other", pa.int64(), 1)], False),
        ([], False),
    ],
)
def test_columns_are_compared_by_name_type_and_id(scanned: list[pa.Field], is_same: bool) -> None:
    wanted = pa.schema([field("id", pa.int64(), 1)])
    if is_same:
        refuse_other_columns("t", "a", pa.schema(scanned), wanted)
        return
    with pytest.raises(NodesDifferError, match="other columns"):
        refuse_other_columns("t", "a", pa.schema(scanned), wanted)


def test_another_table_that_got_the_name_is_not_the_nodes(fed: Fed) -> None:
    fed.write(3, inserts=[{"id": 4, "v": "old"}])
    fed.lake.lake.apply("drop table t", actor="tests")
    fed.lake.create("t", [], schema=SCHEMA)
    with pytest.raises(NodesDifferError, match=r"another table that was called default\.t"):
        fed.ask("select * from t")


def test_a_schema_that_changed_since_is_refused(fed: Fed) -> None:
    metadata = fed.lake.table("t").metadata
    renamed = Schema(
        SCHEMA.fields[0], NestedField(3, "v", StringType(), required=False), schema_id=1, identifier_field_ids=[1]
    )
    changed = metadata.model_copy(
        update={"schemas": [*metadata.schemas, renamed], "current_schema_id": 1, "last_column_id": 3}
    )
    fed.lake.commit({"t": changed})
    with pytest.raises(NodesDifferError, match="other columns"):
        fed.ask("select * from t")


class Asked:
    """The scans that nodes were asked for."""

    def __init__(self, fed: Fed, patch: pytest.MonkeyPatch) -> None:
        self.requests: list[ScanRequest] = []
        for opened in fed.opened.values():
            patch.setattr(opened.node, "scan", self._noted(opened.node.scan))

    def _noted(self, real: Any) -> Any:
        def scan(request: ScanRequest, check: Any) -> Any:
            self.requests.append(request)
            return real(request, check)

        return scan


@pytest.mark.parametrize(
    ("sql", "columns", "predicates"),
    [
        ("select * from t", {"id", "v"}, []),
        ("select count(*)::int n from t", {"id"}, []),
        ("select id from t where id < 5 and id > 1", {"id"}, [("id", ">", 1), ("id", "<", 5)]),
        ("select v from t where v = 'a' order by 1 limit 3", {"id", "v"}, [("v", "=", "a")]),
        ("select id from t where v is null", {"id", "v"}, [("v", "is null", None)]),
        ("select id from t where v like 'ab%'", {"id", "v"}, [("v", ">=", "ab"), ("v", "<", "ac")]),
        ("select id from t where id = 3 or v = 'a'", {"id", "v"}, []),
        ("select id from t where id % 2 = 1", {"id"}, []),
        ("select a.id from t a join t b using (id) where a.v = 'a'", {"id", "v"}, []),
    ],
)
def test_nodes_are_asked_for_what_the_query_depends_on(
    fed: Fed, monkeypatch: pytest.MonkeyPatch, sql: str, columns: set[str], predicates: list[tuple[Any, ...]]
) -> None:
    fed.write(3, inserts=[{"id": each, "v": None if each % 3 == 0 else f"a{each}"} for each in range(40)])
    asked = Asked(fed, monkeypatch)
    fed.ask(sql)
    assert len(asked.requests) == 2, "each node once"
    for request in asked.requests:
        assert request.columns is not None
        assert set(request.columns) == columns
        said = [(each.column, str(each.comparison), each.literal) for each in request.predicates]
        assert sorted(said, key=str) == sorted(predicates, key=str)
    assert {request.timestamp for request in asked.requests} == {3}


def test_answers_are_those_of_duckdb_over_all_rows(fed: Fed) -> None:
    """Whatever is left out on the way."""
    held = [{"id": each, "v": None if each % 3 == 0 else f"{each % 7}x"} for each in range(60)]
    fed.write(3, inserts=held)
    fed.opened["b"].node.flush()
    plain = duckdb.connect()
    plain.register("t", pa.Table.from_pylist(held, schema_of(fed)))
    for sql in (
        "select * from t where id >= 50 order by id",
        "select v, count(*) n from t where v > '3' group by v order by v",
        "select id from t where v is null and id < 20 order by id",
        "select id from t where v is not null and v <= '2x' order by id",
        "select a.id, b.v from t a left join t b on a.id = b.id and b.v = '1x' where a.id between 5 and 12 order by 1",
        "select count(*) n from t where false",
        "select max(id) m from t where v like '4%'",
        "with x as (select * from t where id in (1, 2, 59)) select count(*) n, sum(id)::int s from x",
        "select id from t where id = 7 union all select id from t where id = 8 order by 1",
    ):
        wanted = plain.execute(sql).to_arrow_table().to_pylist()
        assert fed.ask(sql) == wanted, sql


def test_a_table_that_cannot_matter_is_not_scanned(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    fed.write(3, inserts=rows(4))
    asked = Asked(fed, monkeypatch)
    assert fed.ask("select count(*)::int n from t where false") == [{"n": 0}]
    assert fed.ask("select count(*)::int n from p") == [{"n": 2}]
    assert asked.requests == []


def test_a_column_that_a_node_does_not_have_yet(fed: Fed) -> None:
    metadata = fed.lake.table("t").metadata
    wider = Schema(
        *SCHEMA.fields, NestedField(3, "w", StringType(), required=False), schema_id=1, identifier_field_ids=[1]
    )
    changes = {"schemas": [*metadata.schemas, wider], "current_schema_id": 1, "last_column_id": 3}
    fed.lake.commit({"t": metadata.model_copy(update=changes)})
    fed.write(3, inserts=rows(4))
    with pytest.raises(NodesDifferError, match="other columns than the lake has now"):
        fed.ask("select w from t")
    assert fed.ask("select count(v)::int n from t") == [{"n": 4}]


NAME = Reference("x")


@pytest.mark.parametrize(
    ("condition", "predicates"),
    [
        (AlwaysTrue(), []),
        (EqualTo(term=NAME, value=LongLiteral(5)), [pb.Predicate(column="x", comparison="=", integer=5)]),
        (EqualTo(term=NAME, value=BooleanLiteral(False)), [pb.Predicate(column="x", comparison="=", boolean=False)]),
        (LessThan(term=NAME, value=DateLiteral(-1)), [pb.Predicate(column="x", comparison="<", text="1969-12-31")]),
        (
            LessThan(term=NAME, value=DecimalLiteral(Decimal("1E+3"))),
            [pb.Predicate(column="x", comparison="<", text="1000")],
        ),
        (EqualTo(term=NAME, value=TimestampLiteral(-7)), [pb.Predicate(column="x", comparison="=", integer=-7)]),
        (LessThan(term=NAME, value=DoubleLiteral(1.5)), []),
        (EqualTo(term=Reference("y"), value=LongLiteral(5)), []),
        (Or(EqualTo(term=NAME, value=LongLiteral(5)), IsNull(term=NAME)), []),
        (
            And(IsNull(term=NAME), EqualTo(term=Reference("y"), value=LongLiteral(5))),
            [pb.Predicate(column="x", comparison="is null")],
        ),
    ],
)
def test_conditions_that_a_node_understands(condition: BooleanExpression, predicates: list[pb.Predicate]) -> None:
    assert pushed(condition, ["x"]) == predicates


def test_sources_are_merged() -> None:
    found = list(merged([lambda: range(5), lambda: range(10, 13), lambda: range(0)]))
    assert sorted(found) == [0, 1, 2, 3, 4, 10, 11, 12]
    assert [each for each in found if each < 10] == list(range(5))
    assert list(merged([])) == []


def endless(given: list[int]) -> Iterator[int]:
    for each in count():
        given.append(each)
        yield each


def test_the_first_error_of_a_source_ends_all() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise UsageError("boom")

    with pytest.raises(UsageError, match="boom"):
        list(merged([lambda: endless([]), failing]))


def test_a_source_waits_for_its_reader() -> None:
    given: list[int] = []
    slow = iter(merged([lambda: endless(given)]))
    for turn in range(5):
        assert next(slow) == turn
        # Beside what was taken, two wait and one is on its way in.
        assert len(given) <= turn + 1 + 3


def test_a_begin_that_would_be_another_write_each_time_is_sent_once(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer may be lost: who sends it again holds the watermark by a write that nobody knows of."""
    addresses, real = [node.address for node in fed.topology.nodes], NodeClient.call
    with Times(addresses, timeout_seconds=5) as times:
        times.call("GetWatermarks", pb.GetWatermarksRequest())
        for name, request, most in (
            ("BeginTransaction", pb.BeginTransactionRequest(), 1),
            ("BeginTransactionBatch", pb.BeginTransactionBatchRequest(count=2), 1),
            ("BeginTransaction", pb.BeginTransactionRequest(timestamp=7), 2),
            ("BeginTransaction", pb.BeginTransactionRequest(read_only=True), 2),
        ):
            sent = list[object]()

            def lost(self: NodeClient, method: Any, request: Any, sent: list[object] = sent) -> Any:
                if isinstance(request, pb.GetWatermarksRequest):
                    return real(self, method, request)
                sent.append(request)
                raise UnavailableError("the answer is lost")

            with monkeypatch.context() as patch:
                patch.setattr(NodeClient, "call", lost)
                with pytest.raises(UnavailableError):
                    times.call(name, request)
            assert len(sent) == most, name
        assert times.call("BeginTransaction", pb.BeginTransactionRequest()).transaction_id > 0
