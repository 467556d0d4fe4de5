"""One suite that every backend of the catalog port passes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headwater.catalog.errors import (
    CommitNotFoundError,
    ExpectedVersionMismatchError,
    NamespaceMissingError,
    NamespaceNotEmptyError,
    RefConflictError,
    RefExistsError,
    RefNotFoundError,
)
from headwater.catalog.model import (
    OPERATION_PROPERTY,
    Commit,
    CommitRequest,
    Content,
    Delete,
    Difference,
    NamespaceContent,
    Put,
    RefKind,
    TableContent,
    TableKey,
)
from headwater.catalog.port import Catalog
from headwater.catalog.travel import resolve
from headwater.kernel.errors import ConflictError, HeadwaterError, UsageError
from headwater.storage.port import ObjectStore
from tests.conformance.catalogs import (
    CLOCK,
    LAKES,
    Lake,
    anonymous,
    fresh,
    key,
    make_lake,
    put,
    read,
    request,
    space,
    table,
    view,
)

pytestmark = [pytest.mark.parametrize("lake", LAKES, indirect=True), pytest.mark.proves("catalog/embedded")]

T, U, V = key("t"), key("u"), key("v")
UNKNOWN = "0123456789abcdef" * 4


@pytest.fixture
def lake(request: pytest.FixtureRequest, open_backend: Callable[[str], ObjectStore]) -> Lake:
    return make_lake(request.param, open_backend, lambda: request.getfixturevalue("nessie_url"))


@pytest.fixture
def catalog(lake: Lake) -> Catalog:
    return lake.open()


class Unchanged:
    """Nothing that can be seen of the lake changes within the block, for this process or another."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def __enter__(self) -> None:
        self._before = self._look()

    def __exit__(self, *_: object) -> None:
        assert self._look() == self._before

    def _look(self) -> object:
        catalog = self._lake.open()
        head = catalog.ref("main").hash
        return catalog.refs(), [each.hash for each in catalog.log(head)], dict(catalog.contents(head))


@pytest.fixture
def unchanged(lake: Lake) -> Unchanged:
    return Unchanged(lake)


class TestANewLake:
    def test_it_has_the_branch_main_and_the_namespace_default(self, catalog: Catalog) -> None:
        [main] = catalog.refs()
        assert (main.name, main.kind) == ("main", RefKind.BRANCH)
        assert catalog.ref("main") == main
        [(name, content)] = catalog.contents(main.hash)
        assert name == space("default")
        assert isinstance(content, NamespaceContent)

    def test_it_has_a_name(self, catalog: Catalog) -> None:
        assert catalog.name


class TestCommit:
    def test_a_commit_tells_who_when_why_and_on_what(self, catalog: Catalog) -> None:
        head, operation, before = catalog.ref("main").hash, fresh(), CLOCK.now()
        wanted = request(catalog, {T: table()}, actor="ann", message="a\nnew table", properties={"job": "7 ü"})
        commit = catalog.commit(replace(wanted, operation=operation))
        assert commit.parents == (head,)
        assert (commit.actor, commit.message) == ("ann", "a\nnew table")
        assert {"job": "7 ü", OPERATION_PROPERTY: operation}.items() <= commit.properties.items()
        assert commit.operation == operation
        assert commit.committed_at.utcoffset() == timedelta(0)
        assert before - timedelta(minutes=1) < commit.committed_at < CLOCK.now() + timedelta(minutes=1)
        assert catalog.ref("main").hash == commit.hash
        assert catalog.commit_at(commit.hash) == commit

    def test_another_process_sees_it_at_once(self, catalog: Catalog, lake: Lake) -> None:
        other = lake.open()
        assert read(other, other.ref("main").hash) == {}
        content = table()
        commit = put(catalog, {T: content})
        assert other.ref("main").hash == commit.hash
        assert read(other, commit.hash) == {"default.t": anonymous(content)}

    def test_many_tables_and_views_change_as_one(self, catalog: Catalog) -> None:
        first = {key(f"t{number}"): table() for number in range(30)}
        one = put(catalog, {**first, V: view()})
        second = {key(f"t{number}"): table(2) for number in range(0, 30, 2)}
        two = put(catalog, {**second, key("t1"): None})
        expected = {str(each): anonymous(content) for each, content in first.items()}
        assert {name: each for name, each in read(catalog, one.hash).items() if name != "default.v"} == expected
        expected |= {str(each): anonymous(content) for each, content in second.items()}
        del expected["default.t1"]
        assert {name: each for name, each in read(catalog, two.hash).items() if name != "default.v"} == expected

    def test_every_field_of_every_content_comes_back(self, catalog: Catalog) -> None:
        full = TableContent(fresh(), "s3://b/a%20ü/m.json", 2**62 + 1, 3, 4, 5)
        empty = replace(table(), snapshot_id=None)
        seen = view()
        space_content = NamespaceContent(fresh(), {"owner": "ü", "empty": ""})
        commit = put(catalog, {T: full, U: empty, V: seen, space("s"): space_content})
        found = catalog.content(commit.hash, [T, U, V, space("s")])
        assert catalog.known_content(commit.hash, [T, U, V, space("s")]) == found
        assert {each: anonymous(content) for each, content in found.items()} == {
            T: anonymous(full),
            U: anonymous(empty),
            V: anonymous(seen),
            space("s"): anonymous(space_content),
        }

    def test_a_table_keeps_its_id_until_it_is_dropped(self, catalog: Catalog) -> None:
        first = catalog.content(put(catalog, {T: table()}).hash, [T])[T]
        second = catalog.content(put(catalog, {T: table(2)}).hash, [T])[T]
        assert second.content_id == first.content_id
        put(catalog, {T: None})
        again = catalog.content(put(catalog, {T: table()}).hash, [T])[T]
        assert again.content_id != first.content_id

    def test_a_namespace_may_change_its_properties(self, catalog: Catalog) -> None:
        put(catalog, {space("s"): NamespaceContent(fresh(), {"a": "1"})})
        commit = put(catalog, {space("s"): NamespaceContent("", {"b": "2"})})
        content = catalog.content(commit.hash, [space("s")])[space("s")]
        assert isinstance(content, NamespaceContent)
        assert dict(content.properties) == {"b": "2"}

    def test_old_commits_stay_as_they_were(self, catalog: Catalog) -> None:
        contents = [table(number) for number in range(5)]
        commits = [put(catalog, {T: content}) for content in contents]
        for commit, content in zip(commits, contents, strict=True):
            assert read(catalog, commit.hash) == {"default.t": anonymous(content)}

    def test_a_merge_has_two_parents(self, catalog: Catalog) -> None:
        catalog.create_ref(RefKind.BRANCH, "side", catalog.ref("main").hash)
        side = put(catalog, {T: table()}, "side")
        head = put(catalog, {U: table()})
        merged = put(catalog, {T: table()}, merge_parent=side.hash)
        assert merged.parents == (head.hash, side.hash)
        assert catalog.commit_at(merged.hash).parents == (head.hash, side.hash)
        assert side.hash not in [each.hash for each in catalog.log(merged.hash)]

    @pytest.mark.hazard("P13")
    def test_p13_times_never_go_backwards(self, catalog: Catalog, lake: Lake) -> None:
        other = lake.open()
        for number in range(6):
            put(other if number % 2 else catalog, {T: table(number)})
        times = [commit.committed_at for commit in catalog.log(catalog.ref("main").hash)]
        assert times == sorted(times, reverse=True)


class TestConflicts:
    def test_who_lost_a_table_hears_of_the_table(self, catalog: Catalog, unchanged: Unchanged) -> None:
        put(catalog, {T: table()})
        late = request(catalog, {T: table(2)})
        winner = put(catalog, {T: table(3)})
        actual = catalog.content(winner.hash, [T])[T]
        with unchanged, pytest.raises(ExpectedVersionMismatchError, match=r"default\.t") as caught:
            catalog.commit(late)
        assert caught.value.table == T
        assert caught.value.expected == late.expected[T]
        assert caught.value.actual == actual

    def test_who_only_lost_the_branch_hears_of_the_branch_and_may_retry(
        self, catalog: Catalog, unchanged: Unchanged
    ) -> None:
        late = request(catalog, {T: table()})
        winner = put(catalog, {U: table()})
        with unchanged, pytest.raises(RefConflictError, match="main") as caught:
            catalog.commit(late)
        assert (caught.value.ref, caught.value.expected, caught.value.actual) == ("main", late.head, winner.hash)
        commit = catalog.commit(replace(late, head=caught.value.actual))
        assert set(read(catalog, commit.hash)) == {"default.t", "default.u"}

    def test_a_table_that_was_only_read_must_be_unchanged(self, catalog: Catalog, unchanged: Unchanged) -> None:
        put(catalog, {U: table()})
        wanted = request(catalog, {T: table()})
        reader = replace(wanted, expected={**wanted.expected, **catalog.content(str(wanted.head), [U])})
        put(catalog, {U: table(2)})
        fresh_head = replace(reader, head=catalog.ref("main").hash)
        for late in (reader, fresh_head):
            with unchanged, pytest.raises(ExpectedVersionMismatchError) as caught:
                catalog.commit(late)
            assert caught.value.table == U

    def test_what_was_read_as_absent_must_be_absent(self, catalog: Catalog, unchanged: Unchanged) -> None:
        wanted = request(catalog, {T: table()})
        reader = replace(wanted, expected={**wanted.expected, U: None})
        put(catalog, {U: table()})
        with unchanged, pytest.raises(ExpectedVersionMismatchError) as caught:
            catalog.commit(replace(reader, head=catalog.ref("main").hash))
        assert (caught.value.table, caught.value.expected) == (U, None)
        put(catalog, {U: None})
        catalog.commit(replace(reader, head=catalog.ref("main").hash))

    def test_what_was_expected_and_is_gone(self, catalog: Catalog, unchanged: Unchanged) -> None:
        put(catalog, {T: table()})
        late = request(catalog, {T: table(2)})
        put(catalog, {T: None})
        with unchanged, pytest.raises(ExpectedVersionMismatchError) as caught:
            catalog.commit(late)
        assert caught.value.actual is None

    def test_a_table_that_was_dropped_and_made_again_is_another(self, catalog: Catalog, unchanged: Unchanged) -> None:
        content = table()
        put(catalog, {T: content})
        late = request(catalog, {T: table(2)})
        put(catalog, {T: None})
        put(catalog, {T: replace(content, content_id=fresh())})
        with unchanged, pytest.raises(ExpectedVersionMismatchError):
            catalog.commit(replace(late, head=catalog.ref("main").hash))

    def test_another_snapshot_in_the_same_file_is_another_version(self, catalog: Catalog, unchanged: Unchanged) -> None:
        put(catalog, {T: table()})
        late = request(catalog, {T: table(3)})
        there = late.expected[T]
        assert isinstance(there, TableContent)
        put(catalog, {T: replace(there, snapshot_id=2)})
        with unchanged, pytest.raises(ExpectedVersionMismatchError) as caught:
            catalog.commit(replace(late, head=catalog.ref("main").hash))
        assert caught.value.fields["expected"] != caught.value.fields["actual"]

    def test_of_many_at_once_on_one_head_one_wins(self, lake: Lake) -> None:
        catalogs = [lake.open() for _ in range(6)]
        requests = [request(each, {key(f"w{number}"): table()}) for number, each in enumerate(catalogs)]

        def attempt(pair: tuple[Catalog, CommitRequest]) -> str | None:
            try:
                return pair[0].commit(pair[1]).hash
            except ConflictError:
                return None

        with ThreadPoolExecutor(6) as pool:
            won = [each for each in pool.map(attempt, zip(catalogs, requests, strict=True)) if each]
        assert len(won) == 1
        assert catalogs[0].ref("main").hash == won[0]
        assert len(read(catalogs[0], won[0])) == 1

    def test_commits_to_other_branches_do_not_disturb(self, lake: Lake) -> None:
        first = lake.open()
        names = ["one", "two", "three"]
        for name in names:
            first.create_ref(RefKind.BRANCH, name, first.ref("main").hash)

        def work(name: str) -> None:
            catalog = lake.open()
            for number in range(4):
                wanted = request(catalog, {T: table(number)}, name)
                while True:  # many turns at one lake; the branch itself is ours alone
                    try:
                        catalog.commit(wanted)
                        break
                    except (ExpectedVersionMismatchError, RefConflictError):
                        raise
                    except ConflictError:
                        continue

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(work, names))
        base = len(list(first.log(first.ref("main").hash)))
        for name in names:
            assert len(list(first.log(first.ref(name).hash))) == base + 4


class TestSeveralAtOnce:
    """`commit_all`: each request is judged on what those before it made, and answered by itself."""

    def test_each_is_a_commit_of_its_own(self, catalog: Catalog, lake: Lake) -> None:
        contents: dict[TableKey, Content] = {T: table(), U: table(), V: view()}
        base = catalog.ref("main").hash
        wanted = [
            replace(request(catalog, {each: content}), head=None, actor=f"actor of {each}", properties={"n": str(each)})
            for each, content in contents.items()
        ]
        commits = [each for each in catalog.commit_all(wanted) if isinstance(each, Commit)]
        assert [each.operation for each in commits] == [each.operation for each in wanted]
        assert [each.actor for each in commits] == ["actor of default.t", "actor of default.u", "actor of default.v"]
        assert [each.properties["n"] for each in commits] == ["default.t", "default.u", "default.v"]
        assert [each.parents for each in commits] == [(base,), (commits[0].hash,), (commits[1].hash,)]
        other = lake.open()
        head = other.ref("main").hash
        assert head == commits[-1].hash
        assert list(other.log(head, limit=3)) == commits[::-1]
        assert read(other, commits[0].hash) == {"default.t": anonymous(contents[T])}
        assert read(other, head) == {str(each): anonymous(content) for each, content in contents.items()}
        assert [other.outcome("main", each.operation) for each in wanted] == commits

    def test_of_none_nothing_becomes(self, catalog: Catalog, unchanged: Unchanged) -> None:
        with unchanged:
            assert catalog.commit_all([]) == ()

    def test_one_that_is_refused_disturbs_none_of_the_others(self, catalog: Catalog) -> None:
        put(catalog, {T: table()})
        late = replace(request(catalog, {T: table(2)}), head=None)
        put(catalog, {T: table(3)})
        first, last = (replace(request(catalog, {each: table()}), head=None) for each in (U, key("w")))
        nowhere = replace(request(catalog, {TableKey(("nowhere",), "t"): table()}), head=None)
        unknown = replace(first, branch="no-such", operation=fresh())
        one, two, three, four, five = catalog.commit_all([first, late, nowhere, unknown, last])
        assert isinstance(one, Commit)
        assert isinstance(two, ExpectedVersionMismatchError)
        assert (two.table, two.expected) == (T, late.expected[T])
        assert isinstance(three, NamespaceMissingError)
        assert isinstance(four, RefNotFoundError)
        assert isinstance(five, Commit)
        assert five.parents == (one.hash,)
        assert set(read(catalog, five.hash)) == {"default.t", "default.u", "default.w"}
        assert catalog.outcome("main", late.operation) is None

    def test_all_may_be_refused(self, catalog: Catalog, unchanged: Unchanged) -> None:
        late = replace(request(catalog, {T: table()}), head=None)
        put(catalog, {T: table()})
        with unchanged:
            answers = catalog.commit_all([late, late])
        assert [type(each) for each in answers] == [ExpectedVersionMismatchError] * 2

    def test_each_is_judged_on_what_those_before_it_made(self, catalog: Catalog) -> None:
        """Of two that change the same table one wins, and who read what another changes has lost (P8)."""
        put(catalog, {T: table(), U: table()})
        one, two = (replace(request(catalog, {T: table(number)}), head=None) for number in (2, 3))
        read_it = replace(request(catalog, {key("w"): table()}), head=None)
        read_it = replace(read_it, expected={**read_it.expected, T: one.expected[T]})
        other = replace(request(catalog, {U: table(2)}), head=None)
        won, lost, skewed, beside = catalog.commit_all([one, two, read_it, other])
        assert isinstance(won, Commit)
        for each in (lost, skewed):
            assert isinstance(each, ExpectedVersionMismatchError)
            assert (each.table, each.actual) == (T, catalog.content(won.hash, [T])[T])
        assert isinstance(beside, Commit)
        # One that rests on what another of the same call makes is judged likewise.
        base = catalog.content(catalog.ref("main").hash, [T])[T]
        assert isinstance(base, TableContent)
        changed = replace(base, metadata_location=f"s3://lake/t/metadata/{fresh()}.json")
        again = replace(changed, metadata_location=f"s3://lake/t/metadata/{fresh()}.json")
        first = replace(one, changes={T: Put(changed)}, expected={T: base}, operation=fresh())
        second = replace(one, changes={T: Put(again)}, expected={T: changed}, operation=fresh())
        assert all(isinstance(each, Commit) for each in catalog.commit_all([first, second]))
        assert catalog.content(catalog.ref("main").hash, [T])[T] == again

    def test_a_namespace_and_what_is_in_it_may_come_one_after_the_other(self, catalog: Catalog) -> None:
        made = replace(request(catalog, {space("s"): NamespaceContent(fresh())}), head=None)
        inside = replace(request(catalog, {TableKey(("s",), "t"): table()}), head=None)
        early, *rest = catalog.commit_all([inside, made, replace(inside, operation=fresh())])
        assert isinstance(early, NamespaceMissingError)
        assert all(isinstance(each, Commit) for each in rest)

    def test_who_names_the_head_still_gets_it_or_nothing(self, catalog: Catalog) -> None:
        strict = [request(catalog, {each: table()}) for each in (T, U)]
        one, two = catalog.commit_all(strict)
        assert isinstance(one, Commit)
        assert isinstance(two, RefConflictError)
        assert (two.expected, two.actual) == (strict[1].head, one.hash)
        assert set(read(catalog, catalog.ref("main").hash)) == {"default.t"}

    def test_who_names_no_head_follows_on_whatever_it_is(self, catalog: Catalog) -> None:
        wanted = replace(request(catalog, {T: table()}), head=None)
        above = put(catalog, {U: table()})
        assert catalog.commit(wanted).parents == (above.hash,)
        late = replace(wanted, operation=fresh())
        with pytest.raises(ExpectedVersionMismatchError):
            catalog.commit(late)

    def test_a_branch_that_was_made_again_is_another(self, catalog: Catalog, unchanged: Unchanged) -> None:
        first = catalog.create_ref(RefKind.BRANCH, "side", catalog.ref("main").hash)
        wanted = request(catalog, {T: table()}, "side", incarnation=first.incarnation)
        catalog.delete_ref("side", first.hash)
        catalog.create_ref(RefKind.BRANCH, "side", first.hash)
        with unchanged:
            [answer] = catalog.commit_all([replace(wanted, head=None)])
        assert isinstance(answer, RefConflictError)

    def test_a_head_is_not_merged_into_itself(self, catalog: Catalog, unchanged: Unchanged) -> None:
        wanted = request(catalog, {T: table()})
        with unchanged:
            [answer] = catalog.commit_all([replace(wanted, head=None, merge_parent=wanted.head)])
        assert isinstance(answer, UsageError)

    def test_several_branches(self, catalog: Catalog) -> None:
        catalog.create_ref(RefKind.BRANCH, "side", catalog.ref("main").hash)
        on_main, on_side = (replace(request(catalog, {T: table()}, each), head=None) for each in ("main", "side"))
        more = replace(request(catalog, {U: table()}, "side"), head=None)
        one, two, three = catalog.commit_all([on_main, on_side, more])
        assert isinstance(one, Commit)
        assert isinstance(two, Commit)
        assert isinstance(three, Commit)
        assert (catalog.ref("main").hash, catalog.ref("side").hash) == (one.hash, three.hash)
        assert three.parents == (two.hash,)

    def test_processes_that_commit_several_at_once_lose_nothing(self, lake: Lake) -> None:
        def work(number: int) -> list[object]:
            catalog = lake.open()
            done: list[object] = []
            for turn in range(3):
                wanted = [
                    replace(request(catalog, {key(f"p{number}_{turn}_{each}"): table()}), head=None)
                    for each in range(4)
                ]
                while True:
                    try:
                        done += catalog.commit_all(wanted)
                        break
                    except ConflictError:
                        continue  # many turns at one lake
            return done

        with ThreadPoolExecutor(3) as pool:
            commits = [each for done in pool.map(work, range(3)) for each in done]
        assert all(isinstance(each, Commit) for each in commits)
        catalog = lake.open()
        log = [each.hash for each in catalog.log(catalog.ref("main").hash)]
        assert sorted(log[:-1]) == sorted(each.hash for each in commits if isinstance(each, Commit))
        assert len(read(catalog, log[0])) == 36
        times = [commit.committed_at for commit in catalog.log(log[0])]
        assert times == sorted(times, reverse=True)


class TestBadRequests:
    @pytest.mark.parametrize("branch", ["no-such", "release"])
    def test_a_branch_that_is_none(self, catalog: Catalog, unchanged: Unchanged, branch: str) -> None:
        catalog.create_ref(RefKind.TAG, "release", catalog.ref("main").hash)
        wanted = request(catalog, {T: table()})
        with unchanged, pytest.raises(UsageError, match=branch):
            catalog.commit(replace(wanted, branch=branch))

    def test_a_namespace_that_does_not_exist(self, catalog: Catalog, unchanged: Unchanged) -> None:
        with unchanged, pytest.raises(NamespaceMissingError, match="nowhere") as caught:
            put(catalog, {TableKey(("nowhere",), "t"): table()})
        assert caught.value.fields["namespace"] == "nowhere"
        with unchanged, pytest.raises(NamespaceMissingError, match=r"a\.b"):
            put(catalog, {space("a"): NamespaceContent(fresh()), TableKey(("a", "b"), "t"): table()})

    def test_a_table_is_no_namespace(self, catalog: Catalog, unchanged: Unchanged) -> None:
        put(catalog, {T: table()})
        with unchanged, pytest.raises(NamespaceMissingError):
            put(catalog, {TableKey(("default", "t"), "u"): table()})

    def test_a_namespace_and_what_is_in_it_may_come_together(self, catalog: Catalog) -> None:
        inner = TableKey(("a", "b"), "t")
        commit = put(
            catalog,
            {
                inner: table(),
                space("a", "b"): NamespaceContent(fresh()),
                space("a"): NamespaceContent(fresh()),
            },
        )
        assert set(catalog.content(commit.hash, [inner, space("a"), space("a", "b")])) == {
            inner,
            space("a"),
            space("a", "b"),
        }

    def test_a_namespace_that_is_not_empty_stays(self, catalog: Catalog, unchanged: Unchanged) -> None:
        put(catalog, {space("a"): NamespaceContent(fresh()), TableKey(("a",), "t"): table()})
        with unchanged, pytest.raises(NamespaceNotEmptyError, match=r"a\.t"):
            put(catalog, {space("a"): None})
        put(catalog, {TableKey(("a",), "t"): None})
        commit = put(catalog, {space("a"): None})
        assert catalog.content(commit.hash, [space("a")]) == {}

    def test_the_like_named_neighbour_is_not_in_it(self, catalog: Catalog) -> None:
        put(catalog, {space("a"): NamespaceContent(fresh()), space("ab"): NamespaceContent(fresh())})
        put(catalog, {TableKey(("ab",), "t"): table()})
        commit = put(catalog, {space("a"): None})
        assert catalog.content(commit.hash, [space("a")]) == {}

    def test_contradictions_are_refused_before_anything_happens(self, catalog: Catalog, unchanged: Unchanged) -> None:
        put(catalog, {T: table()})
        good = request(catalog, {T: table(2)})
        bad: list[dict[str, object]] = [
            {"expected": {}},
            {"changes": {U: Delete()}, "expected": {U: None}},
            {"changes": {T: Put(table(3))}},
            {"changes": {T: Put(view())}},
            {"changes": {TableKey((), "t"): Put(table())}, "expected": {TableKey((), "t"): None}},
            {"message": ""},
            {"message": "\ud800"},
            {"actor": ""},
            {"actor": "a\x1b[2J"},
            {"properties": {OPERATION_PROPERTY: fresh()}},
            {"properties": {"a": "\0"}},
            {"branch": "ma\nin"},
            {"merge_parent": good.head},
            {"changes": {U: Put(table(content_id="\0"))}, "expected": {U: None}},
            {"changes": {U: Put(replace(table(), content_id=""))}, "expected": {U: None}},
            {"changes": {U: Put(replace(table(), metadata_location="s3://b/\ud800"))}, "expected": {U: None}},
            {"changes": {space("s"): Put(NamespaceContent(fresh(), {"a": 1}))}, "expected": {space("s"): None}},  # type: ignore[dict-item]
        ]
        with unchanged:
            for each in bad:
                with pytest.raises(UsageError):
                    catalog.commit(replace(good, **each))  # type: ignore[arg-type]
        catalog.commit(good)


class TestRefs:
    def test_a_branch_goes_its_own_way(self, catalog: Catalog) -> None:
        base = put(catalog, {T: table()})
        branch = catalog.create_ref(RefKind.BRANCH, "side/a_b-c.1", base.hash)
        assert (branch.name, branch.kind, branch.hash) == ("side/a_b-c.1", RefKind.BRANCH, base.hash)
        side = put(catalog, {U: table()}, branch.name)
        assert catalog.ref("main").hash == base.hash
        assert catalog.ref(branch.name).hash == side.hash
        assert set(read(catalog, side.hash)) == {"default.t", "default.u"}
        assert [each.name for each in catalog.refs()] == ["main", "side/a_b-c.1"]

    def test_a_tag_stays(self, catalog: Catalog) -> None:
        base = put(catalog, {T: table()})
        catalog.create_ref(RefKind.TAG, "v1", base.hash)
        put(catalog, {T: table(2)})
        assert catalog.ref("v1").kind is RefKind.TAG
        assert catalog.ref("v1").hash == base.hash

    def test_a_name_is_taken_once(self, catalog: Catalog, unchanged: Unchanged) -> None:
        head = catalog.ref("main").hash
        catalog.create_ref(RefKind.BRANCH, "side", head)
        for kind in RefKind:
            for name in ("side", "main"):
                with unchanged, pytest.raises(RefExistsError, match=name):
                    catalog.create_ref(kind, name, head)

    def test_a_ref_needs_a_commit(self, catalog: Catalog, unchanged: Unchanged) -> None:
        for at in (UNKNOWN, "main", "", "not a hash"):
            with unchanged, pytest.raises(CommitNotFoundError):
                catalog.create_ref(RefKind.BRANCH, "side", at)
        with unchanged, pytest.raises(CommitNotFoundError, match=UNKNOWN):
            catalog.assign_ref("main", UNKNOWN, catalog.ref("main").hash)

    def test_delete(self, catalog: Catalog, unchanged: Unchanged) -> None:
        first = catalog.ref("main").hash
        catalog.create_ref(RefKind.BRANCH, "side", first)
        side = put(catalog, {T: table()}, "side")
        with unchanged, pytest.raises(RefConflictError, match="side") as caught:
            catalog.delete_ref("side", first)
        assert caught.value.actual == side.hash
        catalog.delete_ref("side", side.hash)
        with pytest.raises(RefNotFoundError, match="side"):
            catalog.ref("side")
        with unchanged, pytest.raises(RefNotFoundError, match="side"):
            catalog.delete_ref("side", side.hash)

    def test_the_default_branch_stays(self, catalog: Catalog, unchanged: Unchanged) -> None:
        with unchanged, pytest.raises(HeadwaterError, match="main"):
            catalog.delete_ref("main", catalog.ref("main").hash)

    def test_assign(self, catalog: Catalog, unchanged: Unchanged) -> None:
        first, second = put(catalog, {T: table()}), put(catalog, {T: table(2)})
        with unchanged, pytest.raises(RefConflictError):
            catalog.assign_ref("main", first.hash, first.hash)
        with unchanged, pytest.raises(RefNotFoundError, match="side"):
            catalog.assign_ref("side", first.hash, first.hash)
        moved = catalog.assign_ref("main", first.hash, second.hash)
        assert moved.hash == catalog.ref("main").hash == first.hash
        assert moved.kind is RefKind.BRANCH

    def test_a_commit_on_what_was_assigned_away_is_late(self, catalog: Catalog, unchanged: Unchanged) -> None:
        first, second = put(catalog, {T: table()}), put(catalog, {U: table()})
        late = request(catalog, {V: view()})
        catalog.assign_ref("main", first.hash, second.hash)
        with unchanged, pytest.raises(RefConflictError):
            catalog.commit(late)

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "1st",
            "-",
            ".a",
            "a..b",
            "a.",
            "a/",
            "a b",
            "a\nb",
            "a\0",
            "a\x7f",
            "a\x85b",
            "a\x1b[31m",
            "ü",
            "a~1",
            "a^",
            "a:b",
            "a*",
            "a@b",
            "a\\b",
            "\ud800",
            "HEAD",
            "head",
            "DETACHED",
            "BARE",
            "deadbeef",
            "DEADBEEF01",
            "a" * 300,
        ],
        ids=ascii,
    )
    def test_bad_names_change_nothing(self, catalog: Catalog, unchanged: Unchanged, name: str) -> None:
        with unchanged:
            for kind in RefKind:
                with pytest.raises(UsageError, match="cannot name a branch or tag"):
                    catalog.create_ref(kind, name, catalog.ref("main").hash)

    def test_a_branch_that_was_made_again_is_another(self, catalog: Catalog, unchanged: Unchanged) -> None:
        head = catalog.ref("main").hash
        old = catalog.create_ref(RefKind.BRANCH, "side", head)
        late = request(catalog, {T: table()}, "side", incarnation=old.incarnation)
        catalog.delete_ref("side", head, incarnation=old.incarnation)
        new = catalog.create_ref(RefKind.BRANCH, "side", head)
        actions: list[Callable[[], object]] = [
            lambda: catalog.commit(late),
            lambda: catalog.delete_ref("side", head, incarnation=old.incarnation),
            lambda: catalog.assign_ref("side", head, head, incarnation=old.incarnation),
        ]
        for action in actions:
            with unchanged, pytest.raises(RefConflictError):
                action()
        commit = catalog.commit(replace(late, incarnation=new.incarnation))
        assert catalog.ref("side").hash == commit.hash

    def test_of_many_at_once_one_creates(self, lake: Lake) -> None:
        catalogs = [lake.open() for _ in range(5)]
        head = catalogs[0].ref("main").hash

        def attempt(catalog: Catalog) -> bool:
            try:
                catalog.create_ref(RefKind.BRANCH, "side", head)
            except ConflictError:
                return False
            return True

        with ThreadPoolExecutor(5) as pool:
            assert sum(pool.map(attempt, catalogs)) == 1

    @pytest.mark.hazard("R7")
    def test_a_branch_that_begins_empty(self, catalog: Catalog, lake: Lake) -> None:
        put(catalog, {T: table()})
        made = catalog.create_empty_branch("replica")
        assert catalog.ref("replica") == made
        assert read(lake.open(), made.hash) == {}
        with pytest.raises(RefExistsError):
            catalog.create_empty_branch("replica")
        content = table()
        commit = put(catalog, {T: content, space("default"): NamespaceContent(fresh())}, "replica")
        assert read(lake.open(), commit.hash) == {"default.t": anonymous(content)}
        main = {each.hash for each in catalog.log(catalog.ref("main").hash)}
        assert not main & {each.hash for each in catalog.log(commit.hash)}


class TestReading:
    def test_the_log_is_newest_first(self, catalog: Catalog) -> None:
        start = catalog.ref("main").hash
        commits = [put(catalog, {T: table(number)}, message=f"no. {number}") for number in range(5)]
        found = list(catalog.log(commits[-1].hash))
        assert found[:5] == commits[::-1]
        assert found[5].hash == start
        assert list(catalog.log(commits[-1].hash, limit=2)) == [commits[4], commits[3]]
        assert list(catalog.log(commits[2].hash, limit=1)) == [commits[2]]
        assert list(catalog.log(commits[2].hash, limit=0)) == []

    def test_what_is_not_there(self, catalog: Catalog) -> None:
        for action in (
            lambda: catalog.commit_at(UNKNOWN),
            lambda: list(catalog.log(UNKNOWN)),
            lambda: list(catalog.contents(UNKNOWN)),
            lambda: catalog.content(UNKNOWN, [T]),
            lambda: catalog.diff(UNKNOWN, catalog.ref("main").hash),
            lambda: catalog.diff(catalog.ref("main").hash, UNKNOWN),
        ):
            with pytest.raises(CommitNotFoundError, match=UNKNOWN):
                action()
        with pytest.raises(RefNotFoundError, match="side"):
            catalog.ref("side")

    def test_only_what_is_asked_for(self, catalog: Catalog) -> None:
        commit = put(catalog, {T: table(), U: table()})
        assert set(catalog.content(commit.hash, [T, V])) == {T}
        assert catalog.content(commit.hash, []) == {}

    def test_contents_are_in_order_and_by_namespace(self, catalog: Catalog) -> None:
        names = [("a",), ("a", "b"), ("a", "b", "t"), ("a", "z"), ("ab",), ("ab", "t"), ("default",), ("default", "t")]
        contents = {
            TableKey(each[:-1], each[-1]): table() if each[-1] in "tz" else NamespaceContent(fresh())
            for each in names
            if each != ("default",)
        }
        commit = put(catalog, contents)
        assert [each.elements for each, _ in catalog.contents(commit.hash)] == names
        assert [each.elements for each, _ in catalog.contents(commit.hash, namespace=("a",))] == names[1:4]
        assert [each.elements for each, _ in catalog.contents(commit.hash, namespace=("a", "b"))] == names[2:3]
        assert list(catalog.contents(commit.hash, namespace=("none",))) == []

    def test_odd_names_come_back(self, catalog: Catalog) -> None:
        odd = TableKey(("default",), "Straße /\\%\"' 表 \U0001f600")
        commit = put(catalog, {odd: table()})
        assert odd in dict(catalog.contents(commit.hash))
        assert set(catalog.content(commit.hash, [odd])) == {odd}

    def test_a_diff_has_what_came_went_and_changed(self, catalog: Catalog) -> None:
        put(catalog, {T: table(), U: table(), key("same"): table()})
        old = catalog.ref("main").hash
        put(catalog, {T: table(2), U: None})
        new = put(catalog, {V: view()}).hash
        before, after = catalog.content(old, [T, U]), catalog.content(new, [T, V])
        assert catalog.diff(old, new) == (
            Difference(T, before[T], after[T]),
            Difference(U, before[U], None),
            Difference(V, None, after[V]),
        )
        assert catalog.diff(new, old) == (
            Difference(T, after[T], before[T]),
            Difference(U, None, before[U]),
            Difference(V, after[V], None),
        )
        assert catalog.diff(new, new) == ()

    def test_branches_can_be_compared(self, catalog: Catalog) -> None:
        base = put(catalog, {T: table()})
        catalog.create_ref(RefKind.BRANCH, "side", base.hash)
        side = put(catalog, {U: table()}, "side")
        main = put(catalog, {V: view()})
        assert [each.key for each in catalog.diff(main.hash, side.hash)] == [U, V]

    def test_an_operation_is_found_in_its_branch_only(self, catalog: Catalog) -> None:
        catalog.create_ref(RefKind.BRANCH, "side", catalog.ref("main").hash)
        operation = fresh()
        commit = put(catalog, {T: table()}, operation=operation)
        put(catalog, {T: table(2)})
        assert catalog.outcome("main", operation) == commit
        assert catalog.outcome("side", operation) is None
        assert catalog.outcome("main", fresh()) is None
        with pytest.raises(RefNotFoundError):
            catalog.outcome("none", operation)

    def test_a_conflict_leaves_no_operation(self, catalog: Catalog) -> None:
        late = request(catalog, {T: table()})
        put(catalog, {U: table()})
        with pytest.raises(RefConflictError):
            catalog.commit(late)
        assert catalog.outcome("main", late.operation) is None

    def test_what_is_held_can_be_read(self, catalog: Catalog) -> None:
        old = put(catalog, {T: table()})
        put(catalog, {T: table(2)})
        with catalog.hold(old.hash, holder="a test") as held:
            held.check()
            assert set(read(catalog, old.hash)) == {"default.t"}
            held.check()
        with pytest.raises(CommitNotFoundError), catalog.hold(UNKNOWN, holder="a test"):
            pass


class TestTimeTravel:
    def test_by_hash_prefix_name_and_time(self, catalog: Catalog) -> None:
        commits = []
        for number in range(4):
            commits.append(put(catalog, {T: table(number)}))
            CLOCK.sleep(0.005)
        catalog.create_ref(RefKind.TAG, "v1", commits[1].hash)
        catalog.create_ref(RefKind.BRANCH, "side", commits[2].hash)
        assert resolve(catalog, None, "main") == commits[3].hash
        assert resolve(catalog, None, "side") == commits[2].hash
        assert resolve(catalog, "v1", "main") == commits[1].hash
        assert resolve(catalog, "side", "main") == commits[2].hash
        for commit in commits:
            assert resolve(catalog, commit.hash, "main") == commit.hash
            assert resolve(catalog, commit.hash[:12], "main") == commit.hash
            assert resolve(catalog, commit.hash[:12].upper(), "main") == commit.hash
            assert resolve(catalog, commit.committed_at, "main") == commit.hash
            assert resolve(catalog, commit.committed_at.isoformat(), "main") == commit.hash
        between = commits[2].committed_at - timedelta(milliseconds=1)
        assert resolve(catalog, between, "main") == commits[1].hash
        assert resolve(catalog, commits[3].committed_at + timedelta(days=1), "side") == commits[2].hash
        assert resolve(catalog, datetime(2999, 1, 1, tzinfo=UTC), "main") == commits[3].hash

    def test_times_of_other_offsets(self, catalog: Catalog) -> None:
        commit = put(catalog, {T: table()})
        there = commit.committed_at + timedelta(hours=5, minutes=30)
        assert resolve(catalog, there.replace(tzinfo=None).isoformat() + "+05:30", "main") == commit.hash

    @pytest.mark.parametrize(
        ("at", "error", "message"),
        [
            ("nope", RefNotFoundError, "nope"),
            ("0123456789", CommitNotFoundError, "no commit in the log of main begins like that"),
            (UNKNOWN, CommitNotFoundError, UNKNOWN),
            ("2026-11-15T09:30:00", UsageError, "no offset"),
            (datetime(2026, 11, 15, 9, 30), UsageError, "no offset"),  # noqa: DTZ001
            ("2026-11-15", UsageError, "no offset"),
            ("2026-13-15T00:00:00Z", UsageError, "not a moment"),
            ("1999-01-01T00:00:00Z", CommitNotFoundError, "main has none at or before"),
            ("", UsageError, "cannot name"),
            ("a\nb", UsageError, "control characters"),
            ("0123456", UsageError, "cannot name"),
        ],
    )
    def test_what_leads_nowhere(
        self, catalog: Catalog, at: str | datetime, error: type[HeadwaterError], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            resolve(catalog, at, "main")
