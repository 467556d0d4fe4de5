"""Idempotency keys: a retried write is carried out once, whenever the server died."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.access import Role
from headwater.catalog.errors import ExpectedVersionMismatchError
from headwater.catalog.model import Commit, TableKey
from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import UnavailableError
from headwater.kernel.failpoints import Action, Failpoint, arm
from headwater.publish.errors import PublishOutcomeUnknownError
from headwater.publish.model import Wish
from tests.unit.server_world import ServedLake, served_lake

KEY = {"idempotency-key": "k-1"}
SQL = "insert into t values (1, 'a')"
ONE = [{"id": 1, "v": "a"}]

pytestmark = pytest.mark.proves("server/once")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def served(tmp_path: Path, clock: ManualClock) -> Iterator[ServedLake]:
    with served_lake(tmp_path / "lake", clock) as world:
        yield world


def publishing(served: ServedLake, monkeypatch: pytest.MonkeyPatch, instead: Callable[[Wish], Commit]) -> None:
    """The next publish is done by `instead`; those after it as ever."""

    def once(wish: Wish) -> Commit:
        monkeypatch.undo()
        return instead(wish)

    monkeypatch.setattr(served.lake.writing.publisher, "publish", once)


def commits(served: ServedLake) -> int:
    return len([actor for actor in served.actors() if actor == "anonymous"])


def is_replayed(answer: httpx.Response) -> bool:
    return bool(answer.headers.get("idempotent-replayed") == "true")


def test_the_same_request_is_answered_alike_and_carried_out_once(served: ServedLake) -> None:
    first, second = served.mutate(SQL, **KEY), served.mutate(SQL, **KEY)
    assert first.json() == second.json()
    assert (is_replayed(first), is_replayed(second)) == (False, True)
    assert served.rows() == ONE
    other = served.mutate("insert into t values (2, 'b')", **KEY)
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")
    elsewhere = served.mutate(SQL, branch="elsewhere", **KEY)
    assert elsewhere.json()["code"] == "key_reused"
    bad = served.mutate(SQL, **{"idempotency-key": "x" * 300})
    assert bad.status_code == 400


def test_every_kind_of_write_takes_a_key(served: ServedLake) -> None:
    served.mutate(SQL)
    served.lake.create_branch("work")
    served.mutate("insert into t values (2, 'b')", branch="work")

    def twice(path: str, key: str, **request: object) -> list[dict[str, object]]:
        headers = {"idempotency-key": key} | dict(request.pop("headers", {}))  # type: ignore[call-overload]
        answers = [served.client.post(path, headers=headers, **request) for _ in range(2)]  # type: ignore[arg-type]
        assert [each.status_code for each in answers] == [200, 200], answers[0].text
        assert is_replayed(answers[1])
        return [each.json() for each in answers]

    before = len(served.actors())
    for first, second in (
        twice("/v1/main/schema", "a", json={"sql": "create table u (x bigint)"}),
        twice("/v1/main/merge", "b", json={"source": "work"}),
        twice("/v1/main/load?table=u", "c", content=b'{"x": 1}', headers={"content-type": "application/x-ndjson"}),
    ):
        assert first == second
        assert first["commit"]
    assert len(served.actors()) == before + 3
    other = served.client.post(
        "/v1/main/load?table=u",
        content=b'{"x": 2}',
        headers={"idempotency-key": "c", "content-type": "application/x-ndjson"},
    )
    assert other.json()["code"] == "key_reused"


def test_a_key_belongs_to_its_caller(served: ServedLake) -> None:
    ann, bob = served.token(Role.WRITER, "ann"), served.token(Role.WRITER, "bob")
    assert served.mutate(SQL, **KEY, **ann).status_code == 200
    assert served.mutate("insert into t values (2, 'b')", **KEY, **bob).status_code == 200
    assert served.actors()[:2] == ["bob", "ann"]


def test_what_is_proven_absent_frees_the_key(served: ServedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def loses(wish: Wish) -> Commit:
        raise ExpectedVersionMismatchError(TableKey.parse("t"), None, None)

    publishing(served, monkeypatch, loses)
    assert served.mutate(SQL, **KEY).status_code == 409
    again = served.mutate(SQL, **KEY)
    assert (again.status_code, is_replayed(again)) == (200, False)
    assert served.rows() == ONE


def test_died_after_the_commit_and_before_the_answer_was_kept(
    served: ServedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> bool:
        raise UnavailableError("the process is gone by now")

    monkeypatch.setattr(served.serving.requests, "keep", dies)
    first = served.mutate(SQL, **KEY)
    monkeypatch.undo()
    for _ in range(2):
        again = served.mutate(SQL, **KEY)
        assert is_replayed(again)
        assert (again.json()["commit"], again.json()["operation"]) == (
            first.json()["commit"],
            first.json()["operation"],
        )
    assert served.rows() == ONE


def test_a_replay_from_the_log_says_as_much_as_the_first_answer(
    served: ServedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.mutate(SQL)
    served.lake.create_branch("work")
    served.mutate("insert into t values (2, 'b')", branch="work")

    def dies(*_: object) -> bool:
        raise UnavailableError("the process is gone by now")

    sql = ["insert into t values (7, 'a'), (8, 'b')", "delete from t where id = 7"]
    requests: dict[str, dict[str, Any]] = {
        "/v1/main/mutate": {"json": {"sql": sql}},
        "/v1/main/schema": {"json": {"sql": "create table u (x bigint); alter table t add column w bigint"}},
        "/v1/main/merge": {"json": {"source": "work"}},
        "/v1/main/load?table=u": {"content": b'{"x": 1}\n{"x": 2}\n'},
    }
    for path, body in requests.items():
        headers = {"idempotency-key": path}
        headers |= {"content-type": "application/x-ndjson"} if "content" in body else {}
        with monkeypatch.context() as dead:
            dead.setattr(served.serving.requests, "keep", dies)
            first = served.client.post(path, headers=headers, **body)
        assert first.status_code == 200, first.text
        again = served.client.post(path, headers=headers, **body)
        assert is_replayed(again)
        assert again.json() == first.json()


def test_died_before_the_commit(served: ServedLake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim waits for its lease: nobody knows that whoever claimed it is dead."""

    def dies(wish: Wish) -> Commit:
        raise UnavailableError("the process is gone by now")

    def is_dead(*_: object) -> None:
        raise UnavailableError("the process is gone by now")

    with monkeypatch.context() as dead:
        dead.setattr(served.lake.writing.publisher, "publish", dies)
        dead.setattr(served.serving.requests, "release", is_dead)
        assert served.mutate(SQL, **KEY).status_code == 503
    waiting = served.mutate(SQL, **KEY)
    assert (waiting.status_code, waiting.json()["code"]) == (409, "in_progress")
    assert int(waiting.headers["retry-after"]) > 0
    assert served.rows() == []
    lease = timedelta(seconds=served.serving.settings.write_seconds)
    clock.advance(lease + served.serving.skew)
    again = served.mutate(SQL, **KEY)
    assert (again.status_code, is_replayed(again)) == (200, False), again.text
    assert served.rows() == ONE


@pytest.mark.parametrize("has_landed", [True, False])
def test_an_unknown_outcome_is_settled_by_its_url_and_by_asking_again(
    served: ServedLake, monkeypatch: pytest.MonkeyPatch, has_landed: bool
) -> None:
    publish = served.lake.writing.publisher.publish

    def loses_its_answer(wish: Wish) -> Commit:
        if has_landed:
            publish(wish)
        raise PublishOutcomeUnknownError(wish.operation, "the answer was lost")

    publishing(served, monkeypatch, loses_its_answer)
    unknown = served.mutate(SQL, **KEY)
    assert (unknown.status_code, unknown.json()["code"]) == (500, "outcome_unknown")
    operation = unknown.json()["operation"]
    assert unknown.json()["settle"] == f"/v1/operations/{operation}?branch=main"
    settled = served.client.get(unknown.json()["settle"]).json()
    assert settled["state"] == ("committed" if has_landed else "absent")
    again = served.mutate(SQL, **KEY)
    assert again.status_code == 200
    assert is_replayed(again) is has_landed
    assert (again.json()["operation"] == operation) is has_landed
    assert served.rows() == ONE
    assert commits(served) == 1


@pytest.mark.parametrize("point", [Failpoint.PUBLISH_AFTER_HEAD, Failpoint.CATALOG_COMMIT_AFTER_MANIFEST])
def test_a_write_that_fails_behind_its_first_head_is_unknown_and_its_url_settles_it(
    served: ServedLake, point: Failpoint
) -> None:
    served.lake.apply("create table u (id bigint)", actor="setup")
    with arm(point, Action.ERROR, only_hit=1):
        unknown = served.mutate([SQL, "insert into u values (1)"])
    assert (unknown.status_code, unknown.json()["code"]) == (500, "outcome_unknown"), unknown.text
    settled = served.client.get(unknown.json()["settle"])
    assert settled.status_code == 200, settled.text
    has_landed = settled.json()["state"] == "committed"
    assert has_landed is (point is Failpoint.CATALOG_COMMIT_AFTER_MANIFEST)
    assert served.rows() == (ONE if has_landed else [])
    # Where it landed, only its note is left, which the next sweep takes away.
    assert len(served.client.get("/v1/sidecars").json()["sidecars"]) == int(has_landed)


def test_what_nobody_foresaw_is_an_unknown_outcome(served: ServedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(wish: Wish) -> Commit:
        raise RuntimeError("a bug")

    publishing(served, monkeypatch, breaks)
    answer = served.mutate(SQL)
    assert (answer.status_code, answer.json()["code"]) == (500, "outcome_unknown")
    assert "a bug" not in answer.text
    assert served.client.get(answer.json()["settle"]).json()["state"] == "absent"


def test_asked_again_while_it_is_under_way(served: ServedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = served.lake.writing.publisher.publish
    begun, go_on = threading.Event(), threading.Event()

    def slow(wish: Wish) -> Commit:
        begun.set()
        assert go_on.wait(30)
        return publish(wish)

    publishing(served, monkeypatch, slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(served.mutate, SQL, **KEY)
        assert begun.wait(30)
        again = served.mutate(SQL, **KEY)
        assert (again.status_code, again.json()["code"]) == (409, "in_progress")
        pending = served.client.get(f"/v1/operations/{again.json()['operation']}")
        assert (pending.status_code, pending.json()["state"]) == (202, "pending")
        go_on.set()
        assert first.result().status_code == 200
    assert is_replayed(served.mutate(SQL, **KEY))
    assert served.rows() == ONE


def test_who_was_taken_for_dead_does_not_commit_any_more(
    served: ServedLake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = served.lake.writing.publisher.publish
    begun, go_on = threading.Event(), threading.Event()

    def stalls(wish: Wish) -> Commit:
        begun.set()
        assert go_on.wait(30)
        return publish(wish)

    publishing(served, monkeypatch, stalls)
    with ThreadPoolExecutor(1) as pool:
        stalled = pool.submit(served.mutate, SQL, **KEY)
        assert begun.wait(30)
        clock.advance(timedelta(seconds=served.serving.settings.write_seconds) + served.serving.skew)
        taken_over = served.mutate(SQL, **KEY)
        assert (taken_over.status_code, is_replayed(taken_over)) == (200, False), taken_over.text
        go_on.set()
        late = stalled.result()
    assert late.status_code in (409, 503), late.text
    assert is_replayed(served.mutate(SQL, **KEY))
    assert served.rows() == ONE
    assert commits(served) == 1


def test_many_at_once_with_one_key(served: ServedLake) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: served.mutate(SQL, **KEY), range(8)))
    assert {each.status_code for each in answers} <= {200, 409}
    assert len({each.json()["commit"] for each in answers if each.status_code == 200}) == 1
    assert served.rows() == ONE


def test_a_write_that_takes_too_long_is_not_committed(
    served: ServedLake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = served.lake.writing.publisher.publish

    def late(wish: Wish) -> Commit:
        clock.advance(timedelta(seconds=served.serving.settings.write_seconds))
        return publish(wish)

    publishing(served, monkeypatch, late)
    answer = served.mutate(SQL)
    assert (answer.status_code, answer.json()["code"]) == (503, "too_late")
    assert served.rows() == []


def test_keys_are_forgotten_after_their_time(served: ServedLake, clock: ManualClock) -> None:
    served.mutate(SQL, **KEY)
    clock.advance(timedelta(days=2))
    assert served.serving.requests.forget(timedelta(days=1)) == 1
    assert served.mutate("delete from t", **KEY).status_code == 200
    assert served.rows() == []
