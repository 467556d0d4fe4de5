"""What a merge decides, without a lake: where branches parted, what becomes of each key, of documents and of files."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from headwater.catalog.model import (
    Commit,
    Content,
    Difference,
    NamespaceContent,
    TableContent,
    TableKey,
    ViewContent,
)
from headwater.kernel.clock import ManualClock
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import seeded
from headwater.publish.branches.ancestry import merge_bases
from headwater.publish.branches.decide import CROSSWISE, TAKEN, differing_files, plan_merge, three_way
from headwater.publish.branches.documents import combine, following, primary_key, same_table
from headwater.publish.branches.model import (
    Combine,
    Combined,
    Conflict,
    MergeConflictError,
    Place,
    Since,
    Take,
    TakeNamespace,
)
from headwater.publish.constraints.codec import REFERENCED_BY
from headwater.tables.columns import AddColumn, DropColumn
from headwater.tables.create import new_table
from headwater.tables.evolve import change_schema, upgrade
from headwater.tables.head import OPERATION, WRITER
from headwater.tables.model import FileTask, TableFile, TableVersion

NOW = datetime(2026, 11, 15, tzinfo=UTC)


# Where two commits parted


def commits(parents: dict[str, tuple[str, ...]], times: dict[str, int]) -> dict[str, Commit]:
    return {
        name: Commit(name, above, "ann", "x", {}, NOW + timedelta(seconds=times[name]))
        for name, above in parents.items()
    }


def brute_force(parents: dict[str, tuple[str, ...]], one: str, other: str) -> set[str]:
    """Every ancestor of both, without those that another of them comes from."""

    def ancestors(name: str) -> set[str]:
        found = {name}
        for parent in parents[name]:
            found |= ancestors(parent)
        return found

    common = ancestors(one) & ancestors(other)
    return {name for name in common if not any(name in ancestors(each) for each in common - {name})}


HISTORIES: dict[str, tuple[dict[str, tuple[str, ...]], str, str, tuple[str, ...]]] = {
    "a line": ({"r": (), "a": ("r",), "b": ("a",)}, "a", "b", ("a",)),
    "itself": ({"r": ()}, "r", "r", ("r",)),
    "two sides": ({"r": (), "a": ("r",), "b": ("r",)}, "a", "b", ("r",)),
    "after a merge": ({"r": (), "a": ("r",), "b": ("r",), "m": ("b", "a"), "c": ("a",)}, "c", "m", ("a",)),
    "crosswise": (
        {"r": (), "a": ("r",), "b": ("r",), "m": ("a", "b"), "n": ("b", "a")},
        "m",
        "n",
        ("b", "a"),
    ),
    "nothing in common": ({"r": (), "s": ()}, "r", "s", ()),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_where_two_commits_parted(name: str) -> None:
    parents, one, other, expected = HISTORIES[name]
    known = commits(parents, {each: place for place, each in enumerate(parents)})
    assert merge_bases(one, other, known.get) == expected
    assert merge_bases(other, one, known.get) == expected


def test_of_equally_new_ancestors_the_smallest_hash_comes_first() -> None:
    parents, one, other, _ = HISTORIES["crosswise"]
    known = commits(parents, dict.fromkeys(parents, 0))
    assert merge_bases(one, other, known.get) == ("a", "b")


@pytest.mark.parametrize("seed", range(60))
def test_any_history(seed: int) -> None:
    dice = random.Random(seed)
    parents: dict[str, tuple[str, ...]] = {"c00": ()}
    times = {"c00": 0}
    for number in range(1, 18):
        above = tuple(dice.sample(sorted(parents), min(len(parents), dice.choice((1, 1, 2)))))
        name = f"c{number:02}"
        parents[name] = above
        times[name] = max(times[each] for each in above) + dice.choice((0, 0, 1))
    known = commits(parents, times)
    for _ in range(12):
        one, other = dice.choice(sorted(parents)), dice.choice(sorted(parents))
        found = merge_bases(one, other, known.get)
        assert set(found) == brute_force(parents, one, other)
        assert list(found) == sorted(found, key=lambda each: (-times[each], each))


def test_history_that_is_not_kept_ends_the_search() -> None:
    parents = {"r": (), "a": ("r",), "b": ("r",)}
    known = commits(parents, {"r": 0, "a": 1, "b": 2})
    del known["r"]
    assert merge_bases("a", "b", known.get) == ()


def test_a_long_history_is_not_walked_to_its_end() -> None:
    names = [f"{number:05}" for number in range(2000)]
    parents: dict[str, tuple[str, ...]] = {
        name: (names[place - 1],) if place else () for place, name in enumerate(names)
    }
    known = commits(parents, {name: place for place, name in enumerate(names)})
    asked: list[str] = []

    def counting(name: str) -> Commit | None:
        asked.append(name)
        return known.get(name)

    assert merge_bases(names[-1], names[-5], counting) == (names[-5],)
    assert len(asked) < 50


# Keys

T = TableKey.parse("t")
U = TableKey.parse("u")
N = TableKey.of_namespace(("n",))
IN_N = TableKey(("n",), "x")
DEFAULT = {TableKey.of_namespace(("default",)): NamespaceContent("d")}


def table(identity: str = "A", version: int = 1) -> TableContent:
    return TableContent(identity, f"{identity}/{version}", version, 0, 0, 0)


def view(version: int = 1) -> ViewContent:
    return ViewContent("V", f"V/{version}", version, 0)


def namespace(**properties: str) -> NamespaceContent:
    return NamespaceContent("N", properties)


def decided(
    changes: list[tuple[TableKey, Content | None, Content | None]],
    present: dict[TableKey, Content],
    unchanged: tuple[str, ...] = (),
) -> tuple[list[object], list[tuple[TableKey, str]]]:
    since = Since(tuple(Difference(*each) for each in changes), frozenset(unchanged))
    steps, conflicts = plan_merge([since], {**DEFAULT, **present})
    return list(steps), [(each.key, each.reason) for each in conflicts]


def test_one_side_changed() -> None:
    a1, a2 = table("A", 1), table("A", 2)
    assert decided([(T, None, a1)], {}) == ([Take(None, Place(T, a1))], [])
    assert decided([(T, a1, a2)], {T: a1}) == ([Take(Place(T, a1), Place(T, a2))], [])
    assert decided([(T, a1, None)], {T: a1}) == ([Take(Place(T, a1), None)], [])
    assert decided([(T, a1, None), (U, None, a1)], {T: a1}) == ([Take(Place(T, a1), Place(U, a1))], [])
    assert decided([(T, view(1), view(2))], {T: view(1)}) == ([Take(Place(T, view(1)), Place(T, view(2)))], [])
    assert decided([(N, None, namespace(a="1"))], {}) == ([TakeNamespace(N, None, namespace(a="1"))], [])
    assert decided([(N, namespace(), None)], {N: namespace()}) == ([TakeNamespace(N, namespace(), None)], [])


def test_both_sides_did_the_same() -> None:
    a1, a2 = table("A", 1), table("A", 2)
    assert decided([(T, a1, a2)], {T: a2}) == ([], [])
    assert decided([(T, a1, None)], {}) == ([], [])
    assert decided([(T, a1, None), (U, None, a1)], {U: a1}) == ([], [])
    other = NamespaceContent("another", {"a": "1"})
    assert decided([(N, None, namespace(a="1"))], {N: other}) == ([], [])


def test_both_sides_changed() -> None:
    a1, a2, a3 = table("A", 1), table("A", 2), table("A", 3)
    assert decided([(T, a1, a2)], {T: a3}) == ([Combine(T, (a1,), a2, Place(T, a3))], [])
    # one side moved it, the other changed it
    assert decided([(T, a1, None), (U, None, a1)], {T: a3}) == ([Combine(U, (a1,), a1, Place(T, a3))], [])
    assert decided([(T, a1, a2)], {U: a1}) == ([Combine(U, (a1,), a2, Place(U, a1))], [])
    assert decided([(T, view(1), None), (U, None, view(1))], {T: view(2)}) == (
        [Take(Place(T, view(2)), Place(U, view(2)))],
        [],
    )


def test_what_stands_in_the_way() -> None:
    a1, a2, a3, b1, c1 = table("A", 1), table("A", 2), table("A", 3), table("B"), table("C")
    w = TableKey.parse("w")
    assert decided([(T, a1, None)], {T: a3})[1] == [(T, "was dropped on the source and changed on the target")]
    assert decided([(T, a1, a2)], {})[1] == [(T, "was changed on the source and dropped on the target")]
    assert decided([(T, None, a2)], {T: a3})[1] == [(T, "was made on both sides, and they differ")]
    assert decided([(T, None, b1)], {T: c1})[1] == [(T, TAKEN)]
    assert decided([(T, a1, b1)], {T: a1})[1] == [(T, TAKEN)]
    assert decided([(T, None, b1)], {T: view()})[1] == [(T, TAKEN)]
    assert decided([(T, a1, None), (U, None, a1)], {w: a1})[1] == [
        (T, f"was renamed to {U} on the source and to {w} on the target")
    ]
    assert decided([(T, view(1), view(2))], {T: view(3)})[1] == [(T, "is a view that was changed on both sides")]
    assert decided([(N, namespace(), namespace(a="1"))], {N: namespace(a="2")})[1] == [
        (N, "is a namespace that was changed on both sides")
    ]


def test_a_table_that_was_replaced_is_taken_once_the_target_has_dropped_the_old_one() -> None:
    assert decided([(T, table("A"), table("B"))], {}) == ([Take(None, Place(T, table("B")))], [])


def test_bases_of_a_crosswise_merge_must_agree() -> None:
    def by(target: Content | None, *bases: Content | None, source: Content | None) -> tuple[object, ...]:
        since = [Since(() if base == source else (Difference(T, base, source),)) for base in bases]
        steps, conflicts = plan_merge(since, {**DEFAULT, **({} if target is None else {T: target})})
        return (*steps, *((each.key, each.reason) for each in conflicts))

    a1, a2, a3 = table("A", 1), table("A", 2), table("A", 3)
    assert by(a1, a1, a1, source=a2) == (Take(Place(T, a1), Place(T, a2)),)
    assert by(a2, a1, a3, source=a2) == ()
    assert by(a1, a1, a2, source=a2) == (Combine(T, (a1, a2), a2, Place(T, a1)),)
    assert by(a1, a1, a3, source=a2) == (Combine(T, (a1, a3), a2, Place(T, a1)),)
    assert by(a1, a1, None, source=a2) == ((T, CROSSWISE),)
    assert by(a1, a1, a2, source=None) == ((T, CROSSWISE),)
    assert by(view(1), view(1), view(2), source=view(2)) == ((T, CROSSWISE),)
    one, two = namespace(a="1"), namespace(a="2")
    since = [Since((Difference(N, one, two),)), Since(())]
    assert plan_merge(since, {N: one}) == ((), (Conflict(N, CROSSWISE),))


def test_a_restored_document_is_no_change() -> None:
    a1, a2, restored = table("A", 1), table("A", 2), replace(table("A", 1), metadata_location="elsewhere")
    assert decided([(T, a1, a2)], {T: restored}, ("A",)) == ([Take(Place(T, restored), Place(T, a2))], [])
    assert decided([(T, a1, None)], {T: restored}, ("A",)) == ([Take(Place(T, restored), None)], [])


def test_namespaces_hold_what_is_in_them() -> None:
    a1, empty = table("A"), namespace()
    assert decided([(N, empty, None)], {N: empty, IN_N: a1})[1] == [
        (N, f"was dropped on the source, and {IN_N} is in it on the target")
    ]
    assert decided([(N, empty, None), (IN_N, a1, None)], {N: empty, IN_N: a1})[1] == []
    assert decided([(IN_N, None, a1)], {})[1] == [(IN_N, f"has no namespace: {N} was dropped on the target")]
    assert decided([(N, None, empty), (IN_N, None, a1)], {})[1] == []


@pytest.mark.parametrize(
    ("base", "source", "target", "expected"),
    [(1, 1, 1, 1), (1, 2, 1, 2), (1, 1, 2, 2), (1, 2, 2, 2), (1, 2, 3, None)],
)
def test_three_way(base: int, source: int, target: int, expected: int | None) -> None:
    assert three_way(base, source, target) == expected


def test_all_conflicts_are_named() -> None:
    error = MergeConflictError("dev", "main", [Conflict(U, "differs"), Conflict(T, "has rows", ("id = 1", "id = 2"))])
    assert [each["table"] for each in error.fields["conflicts"]] == ["default.t", "default.u"]  # type: ignore[attr-defined]
    assert "default.t has rows (id = 1; id = 2); default.u differs" in error.message
    assert error.exit_code == 3


# Documents


@pytest.fixture
def base() -> TableMetadata:
    clock, randomness = ManualClock(), seeded(1)
    incarnation = new_ulid(clock, randomness)
    return new_table(
        Schema(
            NestedField(1, "id", LongType(), required=True),
            NestedField(2, "v", StringType()),
            identifier_field_ids=[1],
        ),
        location="s3://lake/t",
        incarnation=incarnation,
        operation=incarnation,
        clock=clock,
        randomness=randomness,
    )


def put(metadata: TableMetadata, **properties: str | None) -> TableMetadata:
    kept = {**metadata.properties, **properties}
    return metadata.model_copy(update={"properties": {name: each for name, each in kept.items() if each is not None}})


def at(metadata: TableMetadata, snapshot_id: int) -> TableMetadata:
    return metadata.model_copy(update={"current_snapshot_id": snapshot_id})


def wider(metadata: TableMetadata, name: str) -> TableMetadata:
    return change_schema(metadata, [AddColumn(name, StringType())], NOW)


def combined(base: TableMetadata, source: TableMetadata, target: TableMetadata) -> Combined:
    found = combine(T, [base], source, target)
    assert isinstance(found, Combined), found
    return found


def refused(base: TableMetadata, source: TableMetadata, target: TableMetadata) -> str:
    found = combine(T, [base], source, target)
    assert isinstance(found, Conflict), found
    assert found.key == T
    return found.reason


def test_columns_come_from_the_side_that_changed_them(base: TableMetadata) -> None:
    for source, target in ((wider(base, "a"), put(base, x="1")), (put(base, x="1"), wider(base, "a"))):
        found = combined(base, source, target)
        assert found.metadata.schema().column_names == ["id", "v", "a"]
        assert found.metadata.properties["x"] == "1"
        assert not found.needs_rows
    same = combined(base, put(wider(base, "a"), x="1"), wider(base, "a"))
    assert same.metadata.schema().column_names == ["id", "v", "a"]
    assert "columns" in refused(base, wider(base, "a"), wider(base, "b"))
    assert "columns" in refused(base, wider(base, "a"), change_schema(base, [DropColumn("v")], NOW))


def test_properties_are_combined_one_by_one(base: TableMetadata) -> None:
    first = put(base, a="1", b="1", c="1")
    found = combined(first, put(first, a="2", c=None), put(first, b="2", d="1")).metadata.properties
    assert {name: found.get(name) for name in "abcd"} == {"a": "2", "b": "2", "c": None, "d": "1"}
    gone = combined(at(first, 1), at(first, 2), at(put(first, a=None), 1)).metadata.properties
    assert "a" not in gone
    assert "property a" in refused(first, put(first, a="2"), put(first, a="3"))
    assert "property a" in refused(first, put(first, a="2"), put(first, a=None))


def test_who_refers_to_a_table_is_a_set(base: TableMetadata) -> None:
    def referred(*names: str) -> TableMetadata:
        return put(base, **{REFERENCED_BY: str([["default", name] for name in names]).replace("'", '"')})

    found = combined(referred("a", "b"), referred("a", "b", "c"), referred("b", "d"))
    assert found.metadata.properties[REFERENCED_BY] == '[["default", "b"], ["default", "c"], ["default", "d"]]'
    assert REFERENCED_BY not in combined(referred("a"), put(base, x="1"), referred("a")).metadata.properties


def test_rows_come_from_the_side_that_changed_them(base: TableMetadata) -> None:
    found = combined(at(base, 1), at(base, 2), at(wider(base, "a"), 1))
    assert (found.metadata.current_snapshot_id, found.of_source, found.needs_rows) == (2, True, False)
    assert found.metadata.schema().column_names == ["id", "v", "a"]
    found = combined(at(base, 1), at(wider(base, "a"), 1), at(base, 2))
    assert (found.metadata.current_snapshot_id, found.of_source, found.needs_rows) == (2, False, False)
    found = combined(at(base, 1), at(base, 2), at(base, 3))
    assert (found.metadata.current_snapshot_id, found.of_source, found.needs_rows) == (3, False, True)


def test_documents_by_several_bases_must_agree(base: TableMetadata) -> None:
    found = combine(T, [at(base, 1), at(base, 2)], at(base, 2), at(base, 1))
    assert isinstance(found, Combined)
    assert (found.needs_rows, found.of_source) == (True, False)
    found = combine(T, [base, wider(base, "a")], wider(base, "a"), base)
    assert isinstance(found, Conflict)
    assert "columns" in found.reason
    found = combine(T, [put(base, x="1"), put(base, x="2")], put(base, x="2"), put(base, x="1"))
    assert isinstance(found, Conflict)
    assert "properties" in found.reason


def test_rows_of_both_sides_need_a_primary_key(base: TableMetadata) -> None:
    bare = base.model_copy(update={"schemas": [Schema(*base.schema().fields, schema_id=0)]})
    assert primary_key(base) == ("id",)
    assert primary_key(bare) == ()
    assert "no primary key" in refused(at(bare, 1), at(bare, 2), at(bare, 3))


def test_another_format_version_is_not_combined(base: TableMetadata) -> None:
    assert "format version" in refused(base, upgrade(base, 3, NOW), put(base, x="1"))


def test_the_same_table_in_another_document(base: TableMetadata) -> None:
    again = put(base, **{WRITER: "x", OPERATION: "y"}).model_copy(update={"last_updated_ms": 9})
    assert same_table(base, again)
    assert not same_table(base, put(base, x="1"))
    assert not same_table(base, at(base, 1))
    assert not same_table(base, wider(base, "a"))


def test_p7_the_log_of_a_document_names_the_targets_own_alone(base: TableMetadata) -> None:
    operation = new_ulid(ManualClock(), seeded(2))
    of_source = following(base, TableVersion(base, "fork/1"), operation, NOW)
    assert [each.metadata_file for each in of_source.metadata_log] == ["fork/1"]
    target = TableVersion(base, "main/7")
    assert [each.metadata_file for each in following(of_source, target, operation, NOW).metadata_log] == ["main/7"]
    assert following(of_source, None, operation, NOW).metadata_log == []


# Files


def file(path: str, content: DataFileContent = DataFileContent.DATA) -> TableFile:
    made = TableFile.from_args(
        _table_format_version=3,
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
    )
    assert isinstance(made, TableFile)
    return made


def task(path: str, *deletes: str) -> FileTask:
    return FileTask(file(path), 1, positions=tuple(file(each, DataFileContent.POSITION_DELETES) for each in deletes))


def test_only_files_that_are_the_same_everywhere_are_left_out() -> None:
    first = [task("a"), task("b", "d1"), task("c")]
    second = [task("a"), task("b", "d1"), task("c", "d2"), task("e")]
    third = [task("a"), task("b", "d3"), task("c")]
    assert differing_files([first, second]) == (frozenset("c"), frozenset("ce"))
    assert differing_files([first, second, third]) == (frozenset("bc"), frozenset("bce"), frozenset("bc"))
    assert differing_files([first, []]) == (frozenset("abc"), frozenset())
