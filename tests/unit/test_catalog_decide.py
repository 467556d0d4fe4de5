"""Names, keys and the decisions of the embedded catalog, as tables."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.catalog import names
from headwater.catalog.embedded.decide import (
    commit_time,
    found_branch,
    is_kept,
    judge_past,
    may_be_swept,
    with_history_horizon,
    with_moved_ref,
    with_new_ref,
    with_staging_horizon,
    without_ref,
)
from headwater.catalog.embedded.model import Manifest
from headwater.catalog.errors import (
    BehindHorizonError,
    ExpectedVersionMismatchError,
    NamespaceMissingError,
    NamespaceNotEmptyError,
    RefConflictError,
    RefExistsError,
    RefNotFoundError,
)
from headwater.catalog.judging import (
    empties_namespaces,
    judge_namespaces,
    judge_ref,
    judge_versions,
    keys_to_judge,
)
from headwater.catalog.model import (
    Change,
    CommitRequest,
    Content,
    Delete,
    Horizons,
    NamespaceContent,
    Put,
    Ref,
    RefKind,
    TableContent,
    TableKey,
    ViewContent,
    describe,
)
from headwater.catalog.names import check_ref_name
from headwater.kernel.errors import RefusedError, UsageError
from headwater.kernel.ids import Ulid

ONE, TWO = Ulid("01ARZ3NDEKTSV4RRFFQ69G5FAV"), Ulid("01BX5ZZKBKACTAV9WEVGEMMVRZ")
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TABLE = TableContent("a", "m1", 1, 0, 0, 0)
VIEW = ViewContent("a", "m1", 1, 0)
SPACE = NamespaceContent("s")
MAIN = Ref("main", RefKind.BRANCH, "h1", ONE)
TAG = Ref("v1", RefKind.TAG, "h2", TWO)


def manifest(history: datetime | None = None, staging: datetime | None = None) -> Manifest:
    return Manifest(1, ONE, {"main": MAIN, "v1": TAG}, Horizons(history, staging))


def k(text: str) -> TableKey:
    *namespace, name = text.split(".")
    return TableKey(tuple(namespace), name)


class TestKeys:
    def test_parse(self) -> None:
        assert TableKey.parse("t") == TableKey(("default",), "t")
        assert TableKey.parse("a.b.t") == TableKey(("a", "b"), "t")
        assert str(TableKey.parse("a.b.t")) == "a.b.t"

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "empty"),
            (".", "empty"),
            ("a.", "empty"),
            (".a", "empty"),
            ("a..b", "empty"),
            ("a\n", "control"),
            ("\0", "control"),
            ("a\x7f", "control"),
            ("a.b\x9f", "control"),
            ("\udfff", "Unicode"),
            (".".join("a" * 21), "more than 20"),
            ("ü" * 251, "longer than 500 bytes"),
        ],
        ids=ascii,
    )
    def test_bad_names(self, text: str, reason: str) -> None:
        with pytest.raises(UsageError, match=reason):
            TableKey.parse(text)

    def test_a_dot_within_a_part(self) -> None:
        with pytest.raises(UsageError, match="holds a dot"):
            TableKey(("default",), "a.b")
        with pytest.raises(UsageError, match="holds a dot"):
            TableKey(("a.b",), "t")

    def test_keys_of_no_sane_size_are_not_remembered(self) -> None:
        names._objection_to_elements.cache_clear()
        for text in (".".join("a" * 21), "a" * 501, "b" * 100_000, "a." * 1000):
            with pytest.raises(UsageError, match=r"more than 20|longer than 500"):
                TableKey.parse(text)
        assert names._objection_to_elements.cache_info().currsize == 0

    def test_the_limits_themselves_are_fine(self) -> None:
        assert len(TableKey.parse(".".join("a" * 20)).elements) == 20
        assert TableKey.parse("a." + "b" * 499)

    def test_the_order_is_that_of_the_parts(self) -> None:
        names = ["a", "a.b", "a.b.t", "a.z", "ab"]
        assert [str(each) for each in sorted(k(name) for name in reversed(names))] == names
        assert k("a") <= k("a")
        assert k("b") > k("a.b")

    def test_in_a_namespace(self) -> None:
        assert k("a.b.t").is_in(("a",))
        assert k("a.b.t").is_in(("a", "b"))
        assert k("a.b.t").is_in(())
        assert not k("a.b").is_in(("a", "b"))
        assert not k("ab.t").is_in(("a",))
        assert k("a.b.t").parent == k("a.b")
        assert k("a").parent is None

    @given(st.text(max_size=40))
    def test_what_may_name_a_ref_is_plain(self, name: str) -> None:
        try:
            check_ref_name(name)
        except UsageError:
            return
        assert name.isascii()
        assert name.isprintable()
        assert name[0].isalpha()
        assert ".." not in name


OTHERS: list[tuple[Content | None, Content | None, bool]] = [
    (None, None, True),
    (TABLE, None, False),
    (None, TABLE, False),
    (TABLE, TABLE, True),
    (TABLE, TableContent("a", "m1", 2, 0, 0, 0), False),
    (TABLE, TableContent("a", "m1", 1, 1, 0, 0), False),
    (TABLE, TableContent("a", "m1", 1, 0, 1, 0), False),
    (TABLE, TableContent("a", "m1", 1, 0, 0, 1), False),
    (TABLE, TableContent("a", "m2", 1, 0, 0, 0), False),
    (TABLE, TableContent("b", "m1", 1, 0, 0, 0), False),
    (TABLE, VIEW, False),
    (VIEW, VIEW, True),
    (VIEW, ViewContent("a", "m2", 1, 0), False),
    (VIEW, ViewContent("a", "m1", 2, 0), False),
    (VIEW, ViewContent("a", "m1", 1, 1), False),
    (SPACE, SPACE, True),
    (SPACE, NamespaceContent("s", {"a": "b"}), False),
    (SPACE, NamespaceContent("t"), False),
    (SPACE, TABLE, False),
    (SPACE, None, False),
    (None, SPACE, False),
]


@pytest.mark.parametrize(("one", "other", "same"), OTHERS)
def test_other_versions_read_differently(one: Content | None, other: Content | None, same: bool) -> None:
    assert (describe(one) == describe(other)) is same


@pytest.mark.parametrize(("expected", "actual", "same"), OTHERS)
def test_versions_are_judged(expected: Content | None, actual: Content | None, same: bool) -> None:
    request = CommitRequest("main", "h", {}, {k("d.t"): expected}, "a", "m", ONE)
    present = {} if actual is None else {k("d.t"): actual}
    if same:
        judge_versions(request, present)
        return
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        judge_versions(request, present)
    assert (caught.value.table, caught.value.expected, caught.value.actual) == (k("d.t"), expected, actual)
    assert caught.value.fields["actual"] == describe(actual)
    assert caught.value.exit_code == 3


def test_the_first_mismatch_is_named() -> None:
    request = CommitRequest("main", "h", {}, {k("d.z"): TABLE, k("d.b"): TABLE, k("d.a"): None}, "a", "m", ONE)
    with pytest.raises(ExpectedVersionMismatchError, match=r"d\.b"):
        judge_versions(request, {})


def test_what_must_be_known_to_judge() -> None:
    request = CommitRequest(
        "main",
        "h",
        {k("a.b.t"): Put(TABLE), k("c"): Put(SPACE), k("d.t"): Delete()},
        {k("a.b.t"): None, k("c"): None, k("d.t"): TABLE, k("e.read"): TABLE},
        "a",
        "m",
        ONE,
    )
    assert keys_to_judge(request) == {k("a.b.t"), k("a.b"), k("c"), k("d.t"), k("e.read")}
    assert not empties_namespaces(request)
    assert empties_namespaces(CommitRequest("main", "h", {k("c"): Delete()}, {k("c"): SPACE}, "a", "m", ONE))


NAMESPACES: list[tuple[str, dict[str, Change], dict[str, Content], str | None]] = [
    ("a table in a namespace", {"a.t": Put(TABLE)}, {"a": SPACE}, None),
    ("nowhere", {"a.t": Put(TABLE)}, {}, "no namespace a"),
    ("in a table", {"a.t.u": Put(TABLE)}, {"a": SPACE, "a.t": TABLE}, "no namespace a.t"),
    ("with its namespace", {"a.t": Put(TABLE), "a": Put(SPACE)}, {}, None),
    ("with a table for a namespace", {"a.t": Put(TABLE), "a": Put(TABLE)}, {}, "no namespace a"),
    ("as its namespace goes", {"a.t": Put(TABLE), "a": Delete()}, {"a": SPACE}, "no namespace a"),
    ("a namespace at the top", {"a": Put(SPACE)}, {}, None),
    ("a namespace in none", {"a.b": Put(SPACE)}, {}, "no namespace a"),
    ("a delete needs no namespace", {"a.t": Delete()}, {"a.t": TABLE}, None),
    ("an empty namespace goes", {"a": Delete()}, {"a": SPACE, "ab.t": TABLE}, None),
    ("one that holds a table", {"a": Delete()}, {"a": SPACE, "a.t": TABLE}, "a.t is in it"),
    ("one that holds a namespace", {"a": Delete()}, {"a": SPACE, "a.b": SPACE}, "a.b is in it"),
    ("one that is emptied at once", {"a": Delete(), "a.t": Delete()}, {"a": SPACE, "a.t": TABLE}, None),
    ("a table of the same name", {"a": Delete()}, {"a": TABLE, "a.t": TABLE}, None),
]


@pytest.mark.parametrize(
    ("changes", "present", "message"), [row[1:] for row in NAMESPACES], ids=[r[0] for r in NAMESPACES]
)
def test_namespaces_are_judged(changes: dict[str, Change], present: dict[str, Content], message: str | None) -> None:
    asked = {k(name): change for name, change in changes.items()}
    there = {k(name): content for name, content in present.items()}
    if message is None:
        judge_namespaces(asked, there)
    else:
        with pytest.raises((NamespaceMissingError, NamespaceNotEmptyError), match=message):
            judge_namespaces(asked, there)


def test_the_head_is_judged() -> None:
    for incarnation in (None, ONE):
        judge_ref(MAIN, "h1", incarnation)
        with pytest.raises(RefConflictError, match="main is at h1, not at h0") as caught:
            judge_ref(MAIN, "h0", incarnation)
        assert (caught.value.expected, caught.value.actual) == ("h0", "h1")


def test_an_incarnation_is_judged_where_it_is_named() -> None:
    with pytest.raises(RefConflictError, match=f"main was deleted and made again: it is incarnation {ONE}, not {TWO}"):
        judge_ref(MAIN, "h1", TWO)
    ways: list[Callable[[], Manifest]] = [
        lambda: without_ref(manifest(), "v1", "h2", ONE),
        lambda: with_moved_ref(manifest(), "v1", "h3", NOON, "h2", ONE),
    ]
    for way in ways:
        with pytest.raises(RefConflictError, match="made again"):
            way()
    assert without_ref(manifest(), "v1", "h2", TWO).refs == {"main": MAIN}
    assert with_moved_ref(manifest(), "v1", "h3", NOON, "h2", TWO).refs["v1"].hash == "h3"


def test_a_horizon_is_a_moment_that_has_passed() -> None:
    judge_past(NOON, NOON)
    judge_past(NOON - HOUR, NOON)
    with pytest.raises(RefusedError, match="is in the future"):
        judge_past(NOON + timedelta(microseconds=1), NOON)


BAD_CONTENTS: list[tuple[str, Content]] = [
    ("no content id", TableContent("", "m1", 1, 0, 0, 0)),
    ("content id", TableContent("a\0", "m1", 1, 0, 0, 0)),
    ("metadata location", TableContent("a", "m\ud800", 1, 0, 0, 0)),
    ("metadata location", ViewContent("a", "m\0", 1, 0)),
    ("no content id", NamespaceContent("")),
    ("property a", NamespaceContent("s", {"a": "\udfff"})),
    ("property", NamespaceContent("s", {"\0": "b"})),
    ("property a", NamespaceContent("s", {"a": 1})),  # type: ignore[dict-item]
    ("property", NamespaceContent("s", {1: "b"})),  # type: ignore[dict-item]
]


@pytest.mark.parametrize(("what", "content"), BAD_CONTENTS, ids=ascii)
def test_what_cannot_be_stored_is_refused_at_once(what: str, content: Content) -> None:
    with pytest.raises(UsageError, match=rf"d\.t.*{what}"):
        CommitRequest("main", "h", {k("d.t"): Put(content)}, {k("d.t"): None}, "a", "m", ONE)


def test_the_head_is_not_merged_into_itself() -> None:
    assert CommitRequest("main", "h", {}, {}, "a", "m", ONE, merge_parent="g").merge_parent == "g"
    with pytest.raises(UsageError, match="the head itself"):
        CommitRequest("main", "h", {}, {}, "a", "m", ONE, merge_parent="h")


def test_only_branches_take_commits() -> None:
    assert found_branch(manifest(), "main") == MAIN
    with pytest.raises(UsageError, match="v1 is a tag"):
        found_branch(manifest(), "v1")
    with pytest.raises(RefNotFoundError, match="none"):
        found_branch(manifest(), "none")


@pytest.mark.hazard("P13")
@pytest.mark.parametrize(
    ("now", "parent", "expected"), [(NOON, NOON - HOUR, NOON), (NOON, NOON, NOON), (NOON, NOON + HOUR, NOON + HOUR)]
)
def test_p13_a_commits_time(now: datetime, parent: datetime, expected: datetime) -> None:
    assert commit_time(now, parent) == expected


@pytest.mark.parametrize(
    ("staging", "put_at", "swept"),
    [(None, NOON, False), (NOON, NOON, False), (NOON, NOON - HOUR, True), (NOON, NOON + HOUR, False)],
)
def test_when_objects_may_be_swept(staging: datetime | None, put_at: datetime, swept: bool) -> None:
    assert may_be_swept(manifest(staging=staging), put_at) is swept


KEPT = [
    ("no horizon", None, "h9", NOON - HOUR, True),
    ("at the horizon", NOON, "h9", NOON, True),
    ("before it", NOON, "h9", NOON + HOUR, True),
    ("behind it", NOON, "h9", NOON - HOUR, False),
    ("behind it, under a branch", NOON, "h1", NOON - HOUR, True),
    ("behind it, under a tag", NOON, "h2", NOON - HOUR, True),
]


@pytest.mark.hazard("P6")
@pytest.mark.parametrize(("history", "commit", "when", "kept"), [row[1:] for row in KEPT], ids=[row[0] for row in KEPT])
def test_p6_what_is_kept_and_may_get_a_ref(history: datetime | None, commit: str, when: datetime, kept: bool) -> None:
    state = manifest(history)
    assert is_kept(state, commit, when) is kept
    new = Ref("new", RefKind.BRANCH, commit, TWO)
    ways: list[Callable[[], Manifest]] = [
        lambda: with_new_ref(state, new, when),
        lambda: with_moved_ref(state, "main", commit, when, "h1"),
    ]
    for way, name in zip(ways, ("new", "main"), strict=True):
        if kept:
            assert way().refs[name].hash == commit
        else:
            with pytest.raises(BehindHorizonError, match=commit) as caught:
                way()
            assert caught.value.exit_code == 4


def test_refs() -> None:
    new = Ref("new", RefKind.TAG, "h1", TWO)
    assert with_new_ref(manifest(), new, NOON).refs == {"main": MAIN, "v1": TAG, "new": new}
    with pytest.raises(RefExistsError, match="v1"):
        with_new_ref(manifest(), TAG, NOON)
    assert without_ref(manifest(), "v1", "h2").refs == {"main": MAIN}
    with pytest.raises(RefConflictError):
        without_ref(manifest(), "v1", "h1")
    with pytest.raises(RefNotFoundError):
        without_ref(manifest(), "new", "h1")
    with pytest.raises(RefusedError, match="default branch"):
        without_ref(manifest(), "main", "h1")
    moved = with_moved_ref(manifest(), "v1", "h3", NOON, "h2").refs["v1"]
    assert moved == Ref("v1", RefKind.TAG, "h3", TWO)
    with pytest.raises(RefConflictError):
        with_moved_ref(manifest(), "v1", "h3", NOON, "h3")


@pytest.mark.hazard("P6")
@pytest.mark.parametrize("raise_it", [with_history_horizon, with_staging_horizon])
def test_p6_horizons_only_rise(raise_it: Callable[[Manifest, datetime], Manifest]) -> None:
    def of(state: Manifest) -> datetime | None:
        return state.horizons.history if raise_it is with_history_horizon else state.horizons.staging

    first = raise_it(manifest(), NOON)
    assert of(first) == NOON
    assert raise_it(first, NOON) is first
    assert raise_it(first, NOON - HOUR) is first
    assert of(raise_it(first, NOON + HOUR)) == NOON + HOUR
