"""The catalog on a model of Nessie: lost answers, engines that commit in between, and what is ours on the server."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import count

import httpx
import pytest

from headwater.catalog.errors import (
    CatalogBusyError,
    CommitOutcomeUnknownError,
    ExpectedVersionMismatchError,
    NamespaceMissingError,
    NamespaceNotEmptyError,
    RefConflictError,
    RefNotFoundError,
)
from headwater.catalog.model import NamespaceContent, RefKind, TableContent
from headwater.catalog.nessie.model import NO_ANCESTOR, SETTLE_SECONDS
from headwater.catalog.nessie.open import NessieUrl, init_nessie, open_nessie
from headwater.catalog.nessie.protocol import NessieCatalog
from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import OutcomeUnknownError, RefusedError, UnavailableError, UsageError
from headwater.kernel.failpoints import Action, Failpoint, FailpointError, arm
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import system_randomness
from tests.conformance.catalogs import fresh, key, put, read, request, space, table, view
from tests.fixtures.nessie import API, ModelNessie
from tests.unit.nessie_world import COMMIT, PATIENT, World

T, U, V = key("t"), key("u"), key("v")
REPLICA = "main_replica_eu"
COMMIT_PATH = "/history/commit"
# What PostgreSQL says to a Nessie of a region, and Nessie to us.
ONLY_READS = "Unhandled SQL exception, caused by PSQLException: ERROR: permission denied for table refs2"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def catalog(world: World) -> NessieCatalog:
    return world.open()


def operations(catalog: NessieCatalog, branch: str = "main") -> list[str | None]:
    return [each.operation for each in catalog.log(catalog.ref(branch).hash)]


class TestEnginesInBetween:
    """What an engine commits between our look at the head and our commit, on a branch that is not ours alone."""

    @pytest.mark.hazard("P8")
    def test_p8_a_table_that_was_only_read(self, world: World, catalog: NessieCatalog) -> None:
        put(catalog, {U: table()})
        wanted = request(catalog, {T: table()})
        reader = replace(wanted, head=None, expected={**wanted.expected, **catalog.content(str(wanted.head), [U])})
        world.once_before("POST", COMMIT_PATH, lambda: world.foreign({U: table(2)}))
        with pytest.raises(ExpectedVersionMismatchError) as caught:
            catalog.commit(reader)
        assert caught.value.table == U
        assert set(read(catalog, catalog.ref("main").hash)) == {"default.u"}

    @pytest.mark.hazard("P8")
    def test_p8_what_was_read_as_absent(self, world: World, catalog: NessieCatalog) -> None:
        wanted = request(catalog, {T: table()})
        reader = replace(wanted, head=None, expected={**wanted.expected, U: None})
        world.once_before("POST", COMMIT_PATH, lambda: world.foreign({U: table()}))
        with pytest.raises(ExpectedVersionMismatchError) as caught:
            catalog.commit(reader)
        assert (caught.value.table, caught.value.expected) == (U, None)

    def test_absence_that_holds_is_judged_again_on_the_new_head(self, world: World, catalog: NessieCatalog) -> None:
        """That a key is absent is no value Nessie could compare: it says no to any other head, and we look again."""
        wanted = request(catalog, {T: table()})
        reader = replace(wanted, head=None, expected={**wanted.expected, U: None})
        world.once_before("POST", COMMIT_PATH, lambda: world.foreign({V: view()}))
        assert catalog.commit(reader).operation == wanted.operation
        assert set(read(catalog, catalog.ref("main").hash)) == {"default.t", "default.v"}

    def test_a_table_that_we_change(self, world: World, catalog: NessieCatalog) -> None:
        put(catalog, {T: table()})
        wanted = replace(request(catalog, {T: table(2)}), head=None)
        theirs = table(3)
        world.once_before("POST", COMMIT_PATH, lambda: world.foreign({T: theirs}))
        with pytest.raises(ExpectedVersionMismatchError) as caught:
            catalog.commit(wanted)
        assert isinstance(caught.value.actual, TableContent)
        assert caught.value.actual.metadata_location == theirs.metadata_location

    def test_a_table_beside_ours_is_nobodys_business(self, world: World, catalog: NessieCatalog) -> None:
        wanted = replace(request(catalog, {T: table()}), head=None)
        world.once_before("POST", COMMIT_PATH, lambda: world.foreign({U: table()}))
        commit = catalog.commit(wanted)
        assert set(read(catalog, commit.hash)) == {"default.t", "default.u"}
        assert len(commit.parents) == 1

    @pytest.mark.hazard("R1")
    @pytest.mark.parametrize("moment", ["/history/commit", "trees/main@"])
    def test_r1_who_names_the_head_of_main_gets_it_or_nothing(
        self, world: World, catalog: NessieCatalog, moment: str
    ) -> None:
        """Nessie would take both: their keys have nothing to do with each other. The branch itself is compared."""
        wanted = request(catalog, {T: table()})
        moved: list[str] = []

        def hook(method: str, path: str) -> None:
            if not moved and (path.endswith(moment) or (method == "PUT" and path.startswith(moment))):
                moved.append("")
                moved.append(world.foreign({U: table()}))

        world.server.before = hook
        with pytest.raises(RefConflictError) as caught:
            catalog.commit(wanted)
        assert (caught.value.expected, caught.value.actual) == (wanted.head, moved[1])
        assert set(read(catalog, catalog.ref("main").hash)) == {"default.u"}
        assert world.temporaries == []

    def test_a_namespace_that_goes_or_fills(self, world: World, catalog: NessieCatalog) -> None:
        put(catalog, {space("a"): NamespaceContent(fresh()), space("b"): NamespaceContent(fresh())})
        inside = key("a.t")
        wanted = replace(request(catalog, {inside: table()}), head=None)
        world.once_before("POST", COMMIT_PATH, lambda: world.foreign({space("a"): None}))
        with pytest.raises(NamespaceMissingError):
            catalog.commit(wanted)
        wanted = replace(request(catalog, {space("b"): None}), head=None)
        world.once_before("POST", COMMIT_PATH, lambda: world.foreign({key("b.t"): table()}))
        with pytest.raises(NamespaceNotEmptyError, match=r"b\.t"):
            catalog.commit(wanted)

    def test_a_server_that_always_says_no_is_busy(self, world: World, catalog: NessieCatalog) -> None:
        put(catalog, {T: table()})
        wanted = replace(request(catalog, {T: table(2)}), head=None)
        for _ in range(10):
            world.server.lose("POST", COMMIT, is_done=False, status=409)
        with pytest.raises(CatalogBusyError):
            catalog.commit(wanted)
        assert wanted.operation not in operations(catalog)


class TestReplicaBranches:
    """Branches that only sync writes to: the fence makes Nessie compare the head."""

    @pytest.fixture
    def replica(self, catalog: NessieCatalog) -> str:
        catalog.create_ref(RefKind.BRANCH, REPLICA, NO_ANCESTOR)
        put(catalog, {space("default"): NamespaceContent(fresh())}, REPLICA)
        return REPLICA

    @pytest.mark.hazard("R7")
    def test_r7_it_begins_empty(self, catalog: NessieCatalog) -> None:
        ref = catalog.create_ref(RefKind.BRANCH, REPLICA, NO_ANCESTOR)
        assert list(catalog.contents(ref.hash)) == []
        assert list(catalog.log(ref.hash)) == []

    @pytest.mark.hazard("R1")
    def test_r1_of_two_on_one_head_one_wins(self, world: World, catalog: NessieCatalog, replica: str) -> None:
        ours, theirs = (request(catalog, {each: table()}, replica) for each in (T, U))
        other = world.open()
        world.once_before("POST", COMMIT_PATH, lambda: other.commit(theirs))
        with pytest.raises(RefConflictError):
            catalog.commit(ours)
        assert set(read(catalog, catalog.ref(replica).hash)) == {"default.u"}

    @pytest.mark.hazard("R1")
    def test_r1_every_commit_writes_another_value(self, world: World, catalog: NessieCatalog, replica: str) -> None:
        seen = []
        for number in range(3):
            put(catalog, {T: table(number)}, replica)
            fence = world.fence(replica)
            assert fence is not None
            seen.append(fence["sqlText"])
        assert len(set(seen)) == 3
        assert world.fence("main") is None

    @pytest.mark.hazard("R1")
    def test_r1_it_is_shown_nowhere(self, catalog: NessieCatalog, replica: str) -> None:
        before = catalog.ref(replica).hash
        put(catalog, {T: table()}, replica)
        after = catalog.ref(replica).hash
        assert [str(each) for each, _ in catalog.contents(after)] == ["default", "default.t"]
        assert [each.key for each in catalog.diff(before, after)] == [T]

    def test_it_takes_one_request_and_no_temporary(self, world: World, catalog: NessieCatalog, replica: str) -> None:
        wanted = request(catalog, {T: table()}, replica)
        world.server.requests.clear()
        catalog.commit(wanted)
        assert [method for method, path in world.server.requests if path.endswith("/history/commit")] == ["POST"]
        assert not any(method in ("PUT", "DELETE") for method, _ in world.server.requests)


class TestLostAnswers:
    """A commit whose answer is lost is looked for by its operation, and never said to be absent without proof (P3)."""

    @pytest.mark.hazard("P3")
    @pytest.mark.parametrize("status", [None, 500, 502, 503, 504, 408, 429])
    @pytest.mark.parametrize("branch", ["main", REPLICA])
    def test_p3_it_landed(self, world: World, catalog: NessieCatalog, status: int | None, branch: str) -> None:
        _make(catalog, branch)
        wanted = replace(request(catalog, {T: table()}, branch), head=None)
        world.server.lose("POST", COMMIT, is_done=True, status=status)
        commit = catalog.commit(wanted)
        assert commit.operation == wanted.operation
        assert operations(catalog, branch).count(wanted.operation) == 1

    @pytest.mark.hazard("P3")
    @pytest.mark.parametrize("status", [None, 500, 503])
    def test_p3_it_did_not_land(self, world: World, catalog: NessieCatalog, status: int | None) -> None:
        """Nobody says that before a server has had its time."""
        wanted = replace(request(catalog, {T: table()}), head=None)
        world.server.lose("POST", COMMIT, is_done=False, status=status)
        began = world.clock.monotonic()
        with pytest.raises(UnavailableError, match="nothing was committed"):
            catalog.commit(wanted)
        assert world.clock.monotonic() - began >= SETTLE_SECONDS
        assert wanted.operation not in operations(catalog)
        assert sum(path.endswith(COMMIT_PATH) for _, path in world.server.requests) == 2  # the lake's first, and this

    @pytest.mark.hazard("R11")
    @pytest.mark.hazard("P3")
    @pytest.mark.parametrize("looks", [2, 10])
    def test_p3_it_lands_late(self, world: World, catalog: NessieCatalog, looks: int) -> None:
        wanted = replace(request(catalog, {T: table()}), head=None)
        late: list[tuple[httpx.Request, str]] = []
        answer, looked = world.server._answer, count()

        def hold_back(asked: httpx.Request, path: str) -> httpx.Response:
            if path.endswith(COMMIT_PATH):
                late.append((asked, path))
                raise httpx.ReadTimeout("held back", request=asked)
            if late and path.endswith("/history") and next(looked) == looks:
                answer(*late.pop())
            return answer(asked, path)

        world.server._answer = hold_back  # type: ignore[method-assign, assignment]
        assert catalog.commit(wanted).operation == wanted.operation

    @pytest.mark.hazard("P3")
    @pytest.mark.parametrize("is_done", [True, False])
    def test_p3_nobody_answers_any_more(self, world: World, catalog: NessieCatalog, *, is_done: bool) -> None:
        wanted = replace(request(catalog, {T: table()}), head=None)
        world.server.lose("POST", COMMIT, is_done=is_done)
        world.once_before("GET", "/history", lambda: _down(world))
        with pytest.raises(CommitOutcomeUnknownError, match=wanted.operation):
            catalog.commit(wanted)
        world.server.is_down = False
        assert (world.open().outcome("main", wanted.operation) is not None) == is_done

    @pytest.mark.hazard("P3")
    def test_p3_its_branch_is_gone(self, world: World, catalog: NessieCatalog) -> None:
        _make(catalog, "side")
        wanted = replace(request(catalog, {T: table()}, "side"), head=None)
        world.server.lose("POST", COMMIT, is_done=True)
        world.once_before("GET", "/history", lambda: world.server.refs.pop("side"))
        with pytest.raises(CommitOutcomeUnknownError):
            catalog.commit(wanted)

    def test_a_request_that_was_never_sent_changed_nothing(self, world: World, catalog: NessieCatalog) -> None:
        wanted = replace(request(catalog, {T: table()}), head=None)
        world.once_before("POST", COMMIT_PATH, lambda: _down(world))
        with pytest.raises(UnavailableError):
            catalog.commit(wanted)

    @pytest.mark.hazard("P3")
    @pytest.mark.parametrize("status", [None, 500])
    def test_p3_the_answer_of_the_assignment(self, world: World, catalog: NessieCatalog, status: int | None) -> None:
        wanted = request(catalog, {T: table()})
        world.server.lose("PUT", "^trees/main@", is_done=True, status=status)
        assert catalog.commit(wanted).parents == (wanted.head,)
        late = request(catalog, {U: table()})
        world.server.lose("PUT", "^trees/main@", is_done=False, status=status)
        with pytest.raises(UnavailableError, match="nothing was committed"):
            catalog.commit(late)
        assert set(read(catalog, catalog.ref("main").hash)) == {"default.t"}
        assert world.temporaries == []

    @pytest.mark.parametrize(("method", "step"), [("POST", COMMIT), ("POST", "^trees$"), ("PUT", "^trees/main@")])
    def test_an_endpoint_that_can_only_be_read_is_told_at_once(
        self, world: World, catalog: NessieCatalog, method: str, step: str
    ) -> None:
        """A region's Nessie was taken for the write endpoint: nothing happened, and to try again is of no use."""
        wanted = request(catalog, {T: table()})
        wanted = replace(wanted, head=None) if step == COMMIT else wanted
        world.server.lose(method, step, is_done=False, status=500, said=ONLY_READS)
        began = world.clock.monotonic()
        with pytest.raises(RefusedError, match=f"{API} can only be read") as caught:
            catalog.commit(wanted)
        assert "write endpoint" in str(caught.value.hint)
        assert caught.value.exit_code == 4
        assert world.clock.monotonic() == began
        assert wanted.operation not in operations(catalog)
        assert world.temporaries == []

    @pytest.mark.hazard("P3")
    def test_p3_a_refusal_is_believed_when_the_log_does_not_hold_the_commit(
        self, world: World, catalog: NessieCatalog
    ) -> None:
        """A server whose right was taken away while it tried: its first try landed, and the second was refused."""
        wanted = replace(request(catalog, {T: table()}), head=None)
        world.server.lose("POST", COMMIT, is_done=True, status=500, said=ONLY_READS)
        assert catalog.commit(wanted).operation == wanted.operation

    def test_a_read_that_such_an_endpoint_cannot_answer_is_asked_again(
        self, world: World, catalog: NessieCatalog
    ) -> None:
        world.server.lose("GET", "^trees/main$", is_done=False, status=500, said=ONLY_READS)
        assert catalog.ref("main").name == "main"

    @pytest.mark.parametrize("step", ["^trees$", COMMIT])
    def test_before_the_assignment_nothing_was_committed(self, world: World, catalog: NessieCatalog, step: str) -> None:
        wanted = request(catalog, {T: table()})
        world.server.lose("POST", step, is_done=True)
        with pytest.raises(UnavailableError, match="nothing was committed"):
            catalog.commit(wanted)
        assert catalog.outcome("main", wanted.operation) is None
        assert catalog.commit(wanted).parents == (wanted.head,)

    def test_a_read_is_asked_again(self, world: World, catalog: NessieCatalog) -> None:
        """A branch that was just made may be answered with 500 at first (R4)."""
        for _ in range(2):
            world.server.lose("GET", "^trees/main$", is_done=False, status=500)
        assert catalog.ref("main").name == "main"

    def test_what_landed_and_cannot_be_read_is_unknown(self, world: World, catalog: NessieCatalog) -> None:
        wanted = replace(request(catalog, {T: table()}), head=None)
        for _ in range(10):
            world.server.lose("GET", "/history$", is_done=False)
        with pytest.raises(CommitOutcomeUnknownError, match="it was committed as"):
            catalog.commit(wanted)


class TestRefs:
    def test_a_ref_of_another_tool_has_an_incarnation_too(self, world: World, catalog: NessieCatalog) -> None:
        world.server.refs["theirs"] = ("BRANCH", catalog.ref("main").hash)
        ref = catalog.ref("theirs")
        assert ref == next(each for each in catalog.refs() if each.name == "theirs")
        wanted = request(catalog, {T: table()}, "theirs", incarnation=ref.incarnation)
        catalog.commit(wanted)

    def test_a_ref_that_another_tool_made_again_is_not_ours(self, world: World, catalog: NessieCatalog) -> None:
        head = catalog.ref("main").hash
        ours = catalog.create_ref(RefKind.BRANCH, "side", head)
        catalog.delete_ref("side", head)
        world.server.refs["side"] = ("BRANCH", head)
        assert catalog.ref("side").incarnation != ours.incarnation

    def test_a_crash_before_the_record(self, world: World, catalog: NessieCatalog) -> None:
        head = catalog.ref("main").hash
        with arm(Failpoint.NESSIE_REF_AFTER_CREATE, Action.ERROR), pytest.raises(FailpointError):
            catalog.create_ref(RefKind.BRANCH, "side", head)
        half = catalog.ref("side")
        catalog.delete_ref("side", head, incarnation=half.incarnation)
        assert catalog.create_ref(RefKind.BRANCH, "side", head).incarnation != half.incarnation

    def test_a_crash_before_the_ref_goes(self, world: World, catalog: NessieCatalog) -> None:
        """The branch stays, and is another one: who worked on it reads it anew."""
        head = catalog.ref("main").hash
        ours = catalog.create_ref(RefKind.BRANCH, "side", head)
        late = request(catalog, {T: table()}, "side", incarnation=ours.incarnation)
        with arm(Failpoint.NESSIE_REF_AFTER_FORGET, Action.ERROR), pytest.raises(FailpointError):
            catalog.delete_ref("side", head)
        with pytest.raises(RefConflictError):
            catalog.commit(late)
        catalog.delete_ref("side", head)

    def test_a_delete_that_loses_its_race_leaves_the_branch_what_it_was(
        self, world: World, catalog: NessieCatalog
    ) -> None:
        head = catalog.ref("main").hash
        ours = catalog.create_ref(RefKind.BRANCH, "side", head)
        world.once_before("DELETE", head, lambda: world.foreign({T: table()}, "side"))
        with pytest.raises(RefConflictError):
            catalog.delete_ref("side", head)
        assert catalog.ref("side").incarnation == ours.incarnation

    def test_what_is_ours_is_shown_to_nobody(self, world: World, catalog: NessieCatalog) -> None:
        head = catalog.ref("main").hash
        catalog.create_ref(RefKind.BRANCH, "side", head)
        assert "headwater/refs" in world.server.refs
        assert [each.name for each in catalog.refs()] == ["main", "side"]
        with pytest.raises(RefNotFoundError):
            catalog.ref("headwater/refs")
        with pytest.raises(UsageError, match="kept for Headwater"):
            catalog.create_ref(RefKind.BRANCH, "headwater/mine", head)
        with pytest.raises(RefNotFoundError):
            catalog.commit(replace(request(catalog, {T: table()}), branch="headwater/refs", head=None))

    @pytest.mark.parametrize("is_done", [True, False])
    def test_a_lost_answer_is_unknown(self, world: World, catalog: NessieCatalog, *, is_done: bool) -> None:
        head = catalog.ref("main").hash
        world.server.lose("POST", "^trees$", is_done=is_done)
        with pytest.raises(OutcomeUnknownError, match="side"):
            catalog.create_ref(RefKind.BRANCH, "side", head)
        assert ("side" in world.server.refs) == is_done
        catalog.create_ref(RefKind.BRANCH, "other", head)
        world.server.lose("PUT", "^trees/other@", is_done=is_done)
        with pytest.raises(OutcomeUnknownError, match="other"):
            catalog.assign_ref("other", head, head)

    def test_temporaries_that_nobody_ended_are_swept(self, world: World, catalog: NessieCatalog) -> None:
        world.server.refs |= {
            f"headwater/commit/{new_ulid(world.clock, system_randomness())}": ("BRANCH", NO_ANCESTOR),
            "headwater/commit/what-is-this": ("BRANCH", NO_ANCESTOR),
        }
        now = world.clock.now()
        assert catalog.sweep_temporaries(now - timedelta(hours=1)) == 0
        assert len(world.temporaries) == 2
        assert catalog.sweep_temporaries(now + timedelta(minutes=1)) == 1
        assert world.temporaries == ["headwater/commit/what-is-this"]


class TestPages:
    """Lists come in pages; nobody who asks notices."""

    def test_many_of_everything(self, world: World, catalog: NessieCatalog) -> None:
        before = catalog.ref("main").hash
        made = put(catalog, {key(f"t{number:04}"): table() for number in range(600)})
        names = [f"default.t{number:04}" for number in range(600)]
        assert list(read(catalog, made.hash)) == names
        assert [str(each.key) for each in catalog.diff(before, made.hash)] == names
        asked = [key(f"t{number:04}") for number in range(1500)]
        assert len(catalog.content(made.hash, asked)) == 600
        world.server.refs |= {f"r{number:03}": ("TAG", made.hash) for number in range(300)}
        assert len(catalog.refs()) == 301

    @pytest.mark.hazard("P13")
    def test_p13_a_long_log(self, world: World, catalog: NessieCatalog) -> None:
        """Servers whose clocks differ: over the ends of pages too, no commit precedes its parent."""
        ticks = count()
        start = SystemClock().now()
        world.server.clock = lambda: start + timedelta(seconds=(at := next(ticks)) - 3 * (at % 4))
        for number in range(450):
            world.foreign({T: table(number)})
        log = list(catalog.log(catalog.ref("main").hash))
        assert len(log) == 451
        times = [commit.committed_at for commit in log]
        assert times == sorted(times, reverse=True)
        assert list(catalog.log(log[0].hash, limit=3)) == log[:3]
        assert [catalog.commit_at(log[at].hash) for at in (0, 199, 200, 201)] == [log[at] for at in (0, 199, 200, 201)]


class TestStrangers:
    """What others keep on the server, and a lake does not know."""

    def test_it_is_not_shown_and_not_written_over(self, world: World, catalog: NessieCatalog) -> None:
        put(catalog, {U: table()})
        with httpx.Client(transport=world.server, base_url=API + "/") as client:
            head = catalog.ref("main").hash
            content = {"type": "DELTA_LAKE_TABLE", "metadataLocationHistory": [], "checkpointLocationHistory": []}
            keys = [["default", "t"], ["default", "with.dot"]]
            body = {
                "commitMeta": {"message": "an engine"},
                "operations": [{"type": "PUT", "key": {"elements": each}, "content": content} for each in keys],
            }
            client.post(f"trees/main@{head}/history/commit", json=body).raise_for_status()
        after = catalog.ref("main").hash
        assert set(read(catalog, after)) == {"default.u"}
        assert catalog.content(after, [T, U]).keys() == {U}
        with pytest.raises(UsageError, match="DELTA_LAKE_TABLE"):
            put(catalog, {T: table()})

    def test_a_commit_of_an_engine_has_an_actor(self, world: World, catalog: NessieCatalog) -> None:
        made = world.foreign({T: table()})
        commit = catalog.commit_at(made)
        assert (commit.actor, commit.operation) == ("unknown", None)


class TestOpening:
    def test_a_repository_that_engines_use_already_becomes_a_lake(self) -> None:
        server = ModelNessie()
        options = {"clock": SystemClock(), "randomness": system_randomness(), "policy": PATIENT, "transport": server}
        with httpx.Client(transport=server, base_url=API + "/") as client:
            content = {"type": "NAMESPACE", "elements": ["theirs"], "properties": {}}
            operation = {"type": "PUT", "key": {"elements": ["theirs"]}, "content": content}
            body = {"commitMeta": {"message": "an engine"}, "operations": [operation]}
            client.post(f"trees/main@{NO_ANCESTOR}/history/commit", json=body).raise_for_status()
        made = init_nessie(NessieUrl(API, "s3://lake"), **options)  # type: ignore[arg-type]
        assert [str(each) for each, _ in made.contents(made.ref("main").hash)] == ["default", "theirs"]
        again = init_nessie(NessieUrl(API, "s3://lake"), **options)  # type: ignore[arg-type]
        assert again.ref("main") == made.ref("main")

    def test_two_that_make_it_at_once_make_one(self) -> None:
        server = ModelNessie()
        options = {"clock": SystemClock(), "randomness": system_randomness(), "policy": PATIENT, "transport": server}

        def other_first(method: str, path: str) -> None:
            if method == "POST" and path.endswith(COMMIT_PATH):
                server.before = lambda _method, _path: None
                init_nessie(NessieUrl(API, "s3://lake"), **options)  # type: ignore[arg-type]

        server.before = other_first
        made = init_nessie(NessieUrl(API, "s3://lake"), **options)  # type: ignore[arg-type]
        assert len(list(made.log(made.ref("main").hash))) == 1

    def test_a_repository_that_is_no_lake(self) -> None:
        with pytest.raises(UsageError, match="is no lake"):
            open_nessie(
                NessieUrl(API, "s3://lake"),
                clock=SystemClock(),
                randomness=system_randomness(),
                policy=PATIENT,
                transport=ModelNessie(),
            )

    def test_what_is_no_nessie(self) -> None:
        transport = httpx.MockTransport(lambda asked: httpx.Response(200, json={"hello": "world"}, request=asked))
        with pytest.raises(UnavailableError, match="not Nessie's"):
            open_nessie(
                NessieUrl(API, "s3://lake"),
                clock=SystemClock(),
                randomness=system_randomness(),
                policy=PATIENT,
                transport=transport,
            )

    def test_a_server_that_does_not_let_us(self) -> None:
        transport = httpx.MockTransport(lambda asked: httpx.Response(401, text="no", request=asked))
        with pytest.raises(UsageError, match=r"nessie\.token"):
            open_nessie(
                NessieUrl(API, "s3://lake"),
                clock=SystemClock(),
                randomness=system_randomness(),
                policy=PATIENT,
                transport=transport,
            )

    def test_a_token_is_sent_and_not_told(self) -> None:
        seen: list[str | None] = []

        def answer(asked: httpx.Request) -> httpx.Response:
            seen.append(asked.headers.get("authorization"))
            return httpx.Response(500, text="secret-token", request=asked)

        with pytest.raises(UnavailableError):
            open_nessie(
                NessieUrl(API, "s3://lake"),
                clock=SystemClock(),
                randomness=system_randomness(),
                policy=PATIENT,
                token="abc",
                transport=httpx.MockTransport(answer),
            )
        assert set(seen) == {"Bearer abc"}


def _down(world: World) -> None:
    world.server.is_down = True


def _make(catalog: NessieCatalog, branch: str) -> None:
    if branch != "main":
        catalog.create_ref(RefKind.BRANCH, branch, catalog.ref("main").hash)
