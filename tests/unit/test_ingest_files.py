"""The file table's decisions as tables, names of data files, and who may list what."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater
from headwater.ingest.files import FileName, FileRow, FileTableError, FileType, Hull, NewFile, parse_name
from headwater.ingest.files import decide as rules
from headwater.ingest.files.decide import Verdict
from headwater.ingest.files.rows import check_count
from headwater.kernel.errors import UsageError

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
HULL = Hull(2, 10, 19)
INGEST, GC, REGULAR, RETIRED = FileType
SOURCE = Path(headwater.__file__).parent


def row(type_: FileType, *, hull: Hull | None = None, file_id: int = 1, name: str = "f", at: datetime = NOW) -> FileRow:
    cleanup_at = at if type_ is RETIRED else None
    if hull is None:
        return FileRow(file_id, name, type_, 0, 1, cleanup_at=cleanup_at)
    return FileRow(file_id, name, type_, hull.num_row_group, 1, hull.min_row_id, hull.max_row_id, cleanup_at)


@pytest.mark.parametrize("came_from", [INGEST, GC])
@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (row(INGEST), {INGEST: Verdict.CHANGE}),
        (row(GC), {GC: Verdict.CHANGE}),
        (row(REGULAR, hull=HULL), {INGEST: Verdict.DONE_ALREADY, GC: Verdict.DONE_ALREADY}),
        (row(REGULAR, hull=Hull(2, 10, 20)), {}),
        (row(REGULAR, hull=Hull(3, 10, 19)), {}),
        (row(RETIRED, hull=HULL), {}),
        (None, {}),
    ],
)
def test_who_becomes_regular(found: FileRow | None, verdict: dict[FileType, Verdict], came_from: FileType) -> None:
    expected = verdict.get(came_from)
    if expected is None:
        with pytest.raises(FileTableError, match="file 1 cannot be published") as refused:
            rules.publish_verdict(found, 1, HULL, came_from)
        assert refused.value.fields["file_id"] == 1
        assert refused.value.hint
    else:
        assert rules.publish_verdict(found, 1, HULL, came_from) is expected


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ([row(REGULAR), row(REGULAR, file_id=2)], Verdict.CHANGE),
        ([row(RETIRED), row(RETIRED, file_id=2)], Verdict.DONE_ALREADY),
        ([row(RETIRED), row(REGULAR, file_id=2)], None),
        ([row(RETIRED, at=NOW + timedelta(1)), row(RETIRED, file_id=2)], None),
        ([row(REGULAR), row(INGEST, file_id=2)], None),
        ([row(REGULAR), row(GC, file_id=2)], None),
        ([row(REGULAR)], None),
        ([], None),
    ],
)
def test_who_becomes_retired(found: list[FileRow], verdict: Verdict | None) -> None:
    if verdict is None:
        with pytest.raises(FileTableError):
            rules.retire_verdict(found, [1, 2], NOW)
    else:
        assert rules.retire_verdict(found, [1, 2], NOW) is verdict


def test_a_swap_is_done_whole_or_not_begun() -> None:
    for verdict in Verdict:
        assert rules.swap_verdict(verdict, verdict, 1, [2]) is verdict
    for publish, retire in [(Verdict.CHANGE, Verdict.DONE_ALREADY), (Verdict.DONE_ALREADY, Verdict.CHANGE)]:
        with pytest.raises(FileTableError, match="already, and others not"):
            rules.swap_verdict(publish, retire, 1, [2])


def test_who_may_be_forgotten() -> None:
    rules.check_delete([row(INGEST), row(GC, file_id=2), row(RETIRED, file_id=3)], [1, 2, 3])
    with pytest.raises(FileTableError, match="file 1 cannot be deleted: it is REGULAR"):
        rules.check_delete([row(REGULAR)], [1])
    with pytest.raises(FileTableError, match="file 2 cannot be deleted: it is not in the file table"):
        rules.check_delete([row(RETIRED)], [1, 2])


def test_who_may_begin() -> None:
    new = NewFile(1, "f", 1)
    rules.check_new([new, NewFile(2, "g", 1, GC)])
    for type_ in (REGULAR, RETIRED):
        with pytest.raises(FileTableError, match=f"cannot begin as {type_}"):
            rules.check_new([NewFile(1, "f", 1, type_)])
    for wrong in (NewFile(0, "f", 1), NewFile(1, "", 1), NewFile(1, "a/b", 1)):
        with pytest.raises(UsageError):
            rules.check_new([wrong])
    assert rules.add_verdict([], [new]) is Verdict.CHANGE
    assert rules.add_verdict([row(INGEST)], [new]) is Verdict.DONE_ALREADY
    for found in (row(INGEST, name="g"), row(GC), row(REGULAR)):
        with pytest.raises(FileTableError, match="already"):
            rules.add_verdict([found], [new])
    with pytest.raises(FileTableError):
        rules.add_verdict([row(INGEST)], [new, NewFile(2, "g", 1)])


def test_a_count_that_is_not_what_was_asked_for_is_refused() -> None:
    check_count("retired", 2, [1, 2])
    for number in (1, 3):
        with pytest.raises(FileTableError, match=f"{number} files would have been retired, of 2") as refused:
            check_count("retired", number, [1, 2])
        assert refused.value.fields == {"file_ids": [1, 2], "count": number}


@pytest.mark.parametrize("type_", FileType)
def test_cleanup_at_is_set_exactly_on_retired_files(type_: FileType) -> None:
    is_retired = type_ is FileType.RETIRED
    assert FileRow(1, "f", type_, 0, 1, cleanup_at=NOW if is_retired else None).type is type_
    with pytest.raises(FileTableError, match="cleanup_at is set on RETIRED files and on no others"):
        FileRow(1, "f", type_, 0, 1, cleanup_at=None if is_retired else NOW)


@pytest.mark.parametrize("numbers", [(0, 1, 2), (1, 3, 2), (1, -1, 2), (-1, 1, 2)])
def test_a_hull_that_cannot_be(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError):
        Hull(*numbers)


def test_lists_of_files() -> None:
    rules.check_ids([2, 1])
    for wrong in ([], [1, 1]):
        with pytest.raises(UsageError):
            rules.check_ids(wrong)
    assert rules.checked_types(["REGULAR"]) == {REGULAR}  # type: ignore[list-item]
    with pytest.raises(UsageError, match="TEMPORARY'"):
        rules.checked_types(["TEMPORARY"])  # type: ignore[list-item]


def test_a_temporary_file_is_due_by_the_time_in_its_name() -> None:
    rows = [
        row(INGEST, name="7_0_20261115115800_0_1.parquet"),
        row(GC, file_id=2, name="7_0_20261115115900_0_2.parquet"),
        row(INGEST, file_id=3, name="7_0_20261115115901_0_3.parquet"),
        row(INGEST, file_id=4, name="7_0_20261315115800_0_4.parquet"),
        row(INGEST, file_id=5, name="elsewhere.parquet"),
    ]
    due, unreadable = rules.temporary_due(rows, 60, NOW)
    assert [each.file_id for each in due] == [1, 2]
    assert [each.file_id for each in unreadable] == [4, 5]
    assert rules.temporary_due(rows, 1e18, NOW)[0] == ()
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(UsageError):
            rules.temporary_due(rows, wrong, NOW)
    with pytest.raises(UsageError, match="no time zone"):
        rules.temporary_due(rows, 60, NOW.replace(tzinfo=None))


def test_a_retired_file_is_due_at_its_time() -> None:
    second = timedelta(seconds=1)
    rows = [row(RETIRED, at=NOW), row(RETIRED, file_id=2, at=NOW + second), row(RETIRED, file_id=3, at=NOW - second)]
    assert [each.file_id for each in rules.retired_due(rows, NOW)] == [1, 3]


NUMBERS = st.integers(0, 2**62)
TIMES = st.datetimes(timezones=st.just(UTC))


@given(NUMBERS, NUMBERS, TIMES, NUMBERS, NUMBERS)
def test_a_name_says_what_it_was_made_of(table: int, node: int, at: datetime, block: int, file_id: int) -> None:
    made = FileName(table, node, at.replace(microsecond=0), block, file_id)
    assert parse_name(str(made)) == made
    assert "/" not in str(made)


def test_a_name_is_in_utc() -> None:
    east = datetime(2026, 11, 15, 1, 2, 3, 999, tzinfo=timezone(timedelta(hours=3)))
    assert str(FileName(7, 3, east, 12, 99)) == "7_3_20261114220203_12_99.parquet"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "7_3_20261114220203_12_99",
        "7_3_2026111422020_12_99.parquet",
        "7_3_20261314220203_12_99.parquet",
        "7_3_20261114220260_12_99.parquet",
        "07_3_20261114220203_12_99.parquet",
        "7_-3_20261114220203_12_99.parquet",
        "7_3_20261114220203_12_99.parquet.tmp",
        "7_3_20261114220203_12_9999999999999999999.parquet",
        "7_3_20261114220203_12_" + "9" * 5_000 + ".parquet",
        "x/7_3_20261114220203_12_99.parquet",
        "7_3_20261114220203_12_99.parquet\n",
        "7_3_" + "\N{FULLWIDTH DIGIT TWO}" * 14 + "_12_99.parquet",
    ],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_name(name)
    assert refused.value.hint


def test_a_name_needs_a_zone_and_numbers_from_0_on() -> None:
    with pytest.raises(UsageError):
        FileName(7, 3, NOW.replace(tzinfo=None), 12, 99)
    with pytest.raises(UsageError):
        FileName(7, -3, NOW, 12, 99)


# Queries see REGULAR files and no others, so that whoever answers, plans, caches or compacts lists them by one call.
FOR_ADMINISTRATORS = {
    "get_files_by_type",
    "list_temporary_files_due",
    "list_retired_files_due",
    # What operators see of a node, and the call by which they see it.
    "list_files",
    "ListFiles",
}
INNER = {"rows", "tables"}
ADMINISTRATORS = ("ingest/files/", "rpc/")
FUNCTIONS_FOR_OPERATORS = {
    "ingest/node.py": {"list_files"},
    "ingest/service/node.py": {"ListFiles"},
    "cli/node.py": {"files"},
}


def nodes(tree: ast.AST, excused: AbstractSet[str]) -> Iterator[ast.AST]:
    """All of a tree but the functions of these names."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if not (isinstance(child, ast.FunctionDef) and child.name in excused):
            yield from nodes(child, excused)


def trespasses(source: str, excused: AbstractSet[str] = frozenset()) -> set[str]:
    """The ways in which a module reaches past `get_regular_files`."""
    found = set()
    for node in nodes(ast.parse(source), excused):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in FOR_ADMINISTRATORS:
                found.add(name)
            case ast.Attribute(attr=name, value=ast.Name(id="files") | ast.Attribute(attr="files")) if name in INNER:
                found.add(name)
            case ast.Constant(value=str(text)) if text in FOR_ADMINISTRATORS or names_the_rows(text):
                found.add(text)
            case ast.ImportFrom(module=str(module)) if names_the_rows(f"{module}."):
                found.add(module)
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[-1] == "files":
                found |= {each.name for each in names} & INNER
            case ast.Import(names=names):
                found |= {each.name for each in names if names_the_rows(f"{each.name}.")}
    return found


def names_the_rows(text: str) -> bool:
    """Whether it is about what is beneath the file table: its rows in SQL, or the modules that hold them."""
    return "ingest_files" in text or any(f"files.{each}." in f"{text}." for each in INNER)


def test_only_administrators_list_files_that_queries_must_not_see() -> None:
    modules = {file.relative_to(SOURCE).as_posix(): file.read_text() for file in SOURCE.rglob("*.py")}
    assert trespasses(modules["ingest/files/protocol.py"]) >= {"get_files_by_type"}
    for name, functions in FUNCTIONS_FOR_OPERATORS.items():
        assert trespasses(modules[name]), f"{functions} need no excuse any more"
    # Only what speaks of the node's files is worth parsing.
    words = (*FOR_ADMINISTRATORS, "files", "ingest_files")
    others = {
        name: text
        for name, text in modules.items()
        if not name.startswith(ADMINISTRATORS) and any(word in text for word in words)
    }
    excuses = FUNCTIONS_FOR_OPERATORS
    found = {name: trespasses(text, excuses.get(name, frozenset())) for name, text in others.items()}
    assert {name: ways for name, ways in found.items() if ways} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("files.get_regular_files(7)", set()),
        ("files.get_files_by_type(7, types)", {"get_files_by_type"}),
        ("listing = files.list_retired_files_due", {"list_retired_files_due"}),
        ("getattr(files, 'list_temporary_files_due')(60)", {"list_temporary_files_due"}),
        ("node.list_files('t')", {"list_files"}),
        ("client.call(client.node.ListFiles, request)", {"ListFiles"}),
        ("from headwater.ingest.files import rows", {"rows"}),
        ("from ..files import tables as t", {"tables"}),
        ("from headwater.ingest.files.tables import files", {"headwater.ingest.files.tables"}),
        ("from .files.rows import by_type", {"files.rows"}),
        ("import headwater.ingest.files.rows as r", {"headwater.ingest.files.rows"}),
        ("files.rows.by_type(connection, 7, types)", {"rows"}),
        ("headwater.ingest.files.tables.files", {"tables"}),
        ("import_module('headwater.ingest.files.rows')", {"headwater.ingest.files.rows"}),
        ("connection.execute(text('select * from ingest_files'))", {"select * from ingest_files"}),
        ("sql = f'select * from ingest_files where {where}'", {"select * from ingest_files where "}),
    ],
)
def test_a_trespass_is_seen(source: str, found: set[str]) -> None:
    assert trespasses(source) == found
    assert trespasses(f"def look(): {source}", {"list_files"}) == found
    assert trespasses(f"def list_files(): {source}", {"list_files"}) == set()
