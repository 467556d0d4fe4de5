"""The decisions of the catalog on Nessie, row by row."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headwater.catalog.errors import CommitNotFoundError
from headwater.catalog.model import (
    Change,
    CommitRequest,
    Content,
    Delete,
    NamespaceContent,
    Put,
    RefKind,
    TableContent,
    TableKey,
    ViewContent,
)
from headwater.catalog.nessie.codec import (
    StrangeAnswerError,
    commit_of,
    conflicts_of,
    content_of,
    content_to_json,
    own_value,
    own_value_of,
    time_of,
)
from headwater.catalog.nessie.decide import (
    check_hash,
    commit_meta,
    commit_times,
    incarnation_of,
    is_abandoned,
    is_fenced,
    needs_assignment,
    operations,
)
from headwater.catalog.nessie.model import FENCE, NO_ANCESTOR, Conflict, Seen
from headwater.catalog.nessie.urls import NessieUrl, is_nessie_url, parse_nessie_url
from headwater.kernel.errors import UsageError
from headwater.kernel.ids import time_of as ulid_time
from headwater.kernel.ids import ulid_of

FRESH = ulid_of(7)
T, U = TableKey(("default",), "t"), TableKey(("default",), "u")
TABLE = TableContent("id-t", "s3://b/1.json", 1, 0, 0, 0)
SEEN = Seen("main", RefKind.BRANCH, "a" * 64)
START = datetime(2026, 11, 15, 12, tzinfo=UTC)


def request(changes: dict[TableKey, Change], expected: dict[TableKey, Content | None], **more: object) -> CommitRequest:
    made = CommitRequest("main", None, changes, expected, "ann", "a change", ulid_of(1))
    return replace(made, **more)  # type: ignore[arg-type]


class TestOperations:
    def test_what_is_new_has_no_id_and_what_is_there_keeps_its_own(self) -> None:
        changed = replace(TABLE, snapshot_id=2)
        new, old = operations(request({T: Put(changed), U: Put(TABLE)}, {T: None, U: TABLE}), SEEN, FRESH)
        assert (new["type"], "id" in new["content"]) == ("PUT", False)
        assert old["content"]["id"] == "id-t"

    def test_what_is_moved_keeps_its_id(self) -> None:
        made = operations(request({T: Delete(), U: Put(TABLE)}, {T: TABLE, U: None}), SEEN, FRESH)
        assert [each["type"] for each in made] == ["DELETE", "PUT"]
        assert made[1]["content"]["id"] == "id-t"

    @pytest.mark.hazard("P8")
    def test_p8_what_was_only_read_must_be_unchanged(self) -> None:
        made = operations(request({T: Put(TABLE)}, {T: None, U: TABLE}), SEEN, FRESH)
        assert made[1] == {"type": "UNCHANGED", "key": {"elements": ["default", "u"]}}

    @pytest.mark.hazard("R1")
    def test_r1_only_a_replica_branch_has_a_fence(self) -> None:
        on_replica = request({T: Put(TABLE)}, {T: None}, branch="main_replica_eu")
        fenced = operations(on_replica, replace(SEEN, fence_id="f"), FRESH)[-1]
        assert fenced["key"] == {"elements": list(FENCE)}
        assert (fenced["content"]["sqlText"], fenced["content"]["id"]) == (FRESH, "f")
        assert len(operations(replace(on_replica, branch="main"), SEEN, FRESH)) == 1

    def test_nothing_to_do_is_one_operation(self) -> None:
        made = operations(request({}, {}), SEEN, FRESH)
        assert [each["type"] for each in made] == ["UNCHANGED"]

    def test_a_merge_parent_is_a_property(self) -> None:
        made = commit_meta(request({}, {}, merge_parent="b" * 64, properties={"x": "y"}))
        assert made["properties"] == {
            "x": "y",
            "headwater.operation": ulid_of(1),
            "headwater.merge-parent": "b" * 64,
        }


@pytest.mark.hazard("R1")
@pytest.mark.parametrize(
    ("branch", "head", "expected"),
    [
        ("main", None, False),
        ("main", "a" * 64, True),
        ("side", "a" * 64, True),
        ("main_replica_eu", "a" * 64, False),
        ("main_replica_eu", None, False),
    ],
)
def test_r1_when_the_branch_itself_must_be_compared(branch: str, head: str | None, *, expected: bool) -> None:
    assert needs_assignment(request({}, {}, branch=branch, head=head)) is expected


def test_which_branches_are_fenced() -> None:
    assert is_fenced("main_replica_eu-central")
    assert not is_fenced("main")
    assert not is_fenced("my_main_replica_eu")


class TestTimes:
    @pytest.mark.hazard("P13")
    def test_p13_a_servers_clock_that_is_behind(self) -> None:
        log = [START + timedelta(seconds=each) for each in (5, 1, 2, 9, 0)]
        assert commit_times(log) == [START + timedelta(seconds=each) for each in (9, 9, 9, 9, 0)]

    def test_it_looks_back_only_so_far(self) -> None:
        log = [START + timedelta(seconds=each) for each in (1, 2, 9)]
        assert commit_times(log, lookback=1) == [START + timedelta(seconds=each) for each in (2, 9, 9)]
        assert commit_times([]) == []

    @pytest.mark.parametrize(
        ("text", "micros"),
        [
            ("2026-11-15T12:00:00Z", 0),
            ("2026-11-15T12:00Z", 0),
            ("2026-11-15T12:00:00.5Z", 500000),
            ("2026-11-15T12:00:00.123456789Z", 123456),
        ],
    )
    def test_nanoseconds_are_cut(self, text: str, micros: int) -> None:
        assert time_of(text) == START + timedelta(microseconds=micros)

    def test_what_is_no_time(self) -> None:
        with pytest.raises(StrangeAnswerError):
            time_of("yesterday")


class TestIncarnations:
    def test_who_made_it_says_which_it_is(self) -> None:
        assert incarnation_of("side", FRESH) == FRESH
        assert incarnation_of("side", None) == incarnation_of("side", None) != incarnation_of("other", None)

    def test_there_is_one_main(self) -> None:
        assert incarnation_of("main", FRESH) == incarnation_of("main", None)


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        (f"headwater/commit/{FRESH}", True),
        ("headwater/commit/7ZZZZZZZZZZZZZZZZZZZZZZZZZ", False),
        ("headwater/commit/other", False),
        ("headwater/refs", False),
        (f"{FRESH}", False),
        ("main", False),
    ],
)
def test_what_is_abandoned(ref: str, *, expected: bool) -> None:
    assert is_abandoned(ref, ulid_time(FRESH) + timedelta(seconds=1)) is expected


class TestCodec:
    @pytest.mark.parametrize(
        "content",
        [
            TABLE,
            replace(TABLE, snapshot_id=None),
            ViewContent("v", "s3://b/v.json", 2, 1),
            NamespaceContent("n", {"a": ""}),
        ],
    )
    def test_contents_come_back(self, content: Content) -> None:
        assert content_of(content_to_json(T, content, content.content_id)) == content

    def test_what_we_do_not_know(self) -> None:
        assert content_of({"type": "UDF", "id": "x", "sqlText": "1"}) is None
        assert own_value_of({"type": "UDF", "dialect": "other", "sqlText": FRESH}) is None
        assert own_value_of({"type": "UDF", "dialect": "headwater", "sqlText": "no ULID"}) is None
        assert own_value_of(own_value(FRESH, None)) == FRESH

    def test_parents_of_a_merge_of_ours_and_of_nessies_own(self) -> None:
        meta = {"hash": "c", "message": "m", "commitTime": "2026-11-15T12:00:00Z", "parentCommitHashes": ["a"]}
        ours = {**meta, "allProperties": {"headwater.merge-parent": ["b"]}}
        assert commit_of({"commitMeta": ours})[0].parents == ("a", "b")
        assert commit_of({"commitMeta": ours})[0].properties == {}
        theirs = {**meta, "parentCommitHashes": ["a", "b"]}
        assert commit_of({"commitMeta": theirs})[0].parents == ("a", "b")
        assert commit_of({"commitMeta": {**meta, "parentCommitHashes": [NO_ANCESTOR]}})[0].parents == ()

    @pytest.mark.parametrize(
        ("meta", "actor"),
        [
            ({"authors": ["ann", "bob"], "committer": "c"}, "ann"),
            ({"authors": [], "committer": "c"}, "c"),
            ({"authors": [""], "committer": ""}, "unknown"),
        ],
    )
    def test_who_it_was(self, meta: dict[str, object], actor: str) -> None:
        entry = {"commitMeta": {"hash": "c", "message": "m", "commitTime": "2026-11-15T12:00:00Z", **meta}}
        assert commit_of(entry)[0].actor == actor

    def test_conflicts_have_keys(self) -> None:
        details = {"conflicts": [{"conflictType": "VALUE_DIFFERS", "key": {"elements": ["a", "t"]}}, {"key": None}]}
        assert conflicts_of({"errorDetails": details}) == (
            Conflict("VALUE_DIFFERS", ("a", "t")),
            Conflict("UNKNOWN", None),
        )
        assert conflicts_of({"errorDetails": None}) == ()


@pytest.mark.parametrize("text", ["", "main", "ABC", "g" * 64, "a" * 63])
def test_what_is_no_hash(text: str) -> None:
    with pytest.raises(CommitNotFoundError):
        check_hash(text)


class TestUrls:
    def test_good_ones(self) -> None:
        url = parse_nessie_url("nessie+http://host:19120/api/v2?warehouse=s3://bucket/prefix")
        assert url == NessieUrl("http://host:19120/api/v2", "s3://bucket/prefix")
        assert parse_nessie_url(str(url)) == url
        assert parse_nessie_url("nessie+https://h/api/v2/?warehouse=/a/folder").api == "https://h/api/v2"
        assert is_nessie_url("nessie+http://x")
        assert not is_nessie_url("s3://b")
        assert not is_nessie_url("/nessie+http")

    @pytest.mark.parametrize(
        "url",
        [
            "nessie+http://host:19120/api/v2",
            "nessie+http://host:19120/api/v2?",
            "nessie+http://host:19120/api/v2?warehouse=s3://b&x=1",
            "nessie+http://host:19120?warehouse=s3://b",
            "nessie+http:///api/v2?warehouse=s3://b",
            "nessie+http://host:0/api/v2?warehouse=s3://b",
            "nessie+http://host:99999/api/v2?warehouse=s3://b",
            "nessie+http://host/api/v2?warehouse=s3://b#x",
            "nessie+http://me:secret@host/api/v2?warehouse=s3://b",
        ],
    )
    def test_bad_ones_tell_no_secrets(self, url: str) -> None:
        with pytest.raises(UsageError) as caught:
            parse_nessie_url(url)
        assert "secret" not in str(caught.value)
