"""Forks: whose they are, and how a branch writes to one that should not be there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

import pytest

from headwater.catalog.errors import ExpectedVersionMismatchError
from headwater.catalog.model import RefKind, TableContent, TableKey
from headwater.kernel import failpoints
from headwater.kernel.errors import ConflictError
from headwater.kernel.failpoints import Action, Failpoint
from headwater.kernel.ids import Ulid, new_ulid
from headwater.publish.errors import DriftError, PublishOutcomeUnknownError, RecoveryPendingError
from headwater.publish.forks.decide import fork_of, incarnation_of, standing_of
from headwater.publish.forks.model import ForkFacts, ForkStanding
from headwater.publish.model import TableWish, Wish
from headwater.storage.errors import StorageOutcomeUnknownError, TransientError
from headwater.storage.port import ObjectMeta, ObjectStore, PutMode
from headwater.storage.wrapper import StoreWrapper
from headwater.tables.model import Staged
from tests.unit.publish_world import OVER, Process, PublishWorld

SOMEBODY = Ulid("01ARZ3NDEKTSV4RRFFQ69G5FAV")


@pytest.fixture
def world() -> PublishWorld:
    made = PublishWorld()
    process = made.process()
    process.create("t1", "t2")
    process.catalog.create_ref(RefKind.BRANCH, "dev", process.catalog.ref("main").hash)
    return made


def content(process: Process, name: str = "t1", *, branch: str = "main") -> TableContent:
    found = process.pinned(name, branch=branch)
    assert isinstance(found, TableContent)
    return found


def fork_path(process: Process, name: str = "t1", *, branch: str = "dev") -> str:
    metadata = process.version(content(process, name, branch=branch)).metadata
    return process.writing.heads.path_for(metadata, process.catalog.ref(branch).incarnation)


def put_behind(process: Process, path: str, payload: bytes | None = None, *, times: int = 1) -> None:
    """Move a head by hand, and tell nobody."""
    sequence = process.writing.heads.sequence(path)
    for _ in range(times):
        document = payload or process.files.read(content(process).metadata_location)
        sequence.write(
            document, after=sequence.latest(), writer=new_ulid(process.world.clock, process.world.randomness)
        )


def brought(process: Process, name: str) -> Wish:
    """The wish to have a table of dev on main too."""
    version = process.version(content(process, name, branch="dev"))
    wish = process.wish({})
    return replace(wish, tables=(TableWish(TableKey.parse(name), None, Staged(version.metadata)),))


class TestStanding:
    """By a table of every case, and by words that are not the code's."""

    @pytest.mark.parametrize(
        ("pinned", "planned", "used"), list(product((True, False, None), ((SOMEBODY,), (), None), (True, False, None)))
    )
    def test_every_case(self, pinned: bool | None, planned: tuple[Ulid, ...] | None, used: bool | None) -> None:
        facts = [pinned, None if planned is None else bool(planned), used]
        expected = (
            ForkStanding.LEGITIMATE
            if any(facts)
            else ForkStanding.INDETERMINATE
            if None in facts
            else ForkStanding.ORPHAN
        )
        assert standing_of(ForkFacts(pinned, planned, used)) is expected

    def test_only_what_is_known_for_certain_is_an_orphan(self) -> None:
        orphans = [
            (pinned, planned, used)
            for pinned, planned, used in product((True, False, None), ((SOMEBODY,), (), None), (True, False, None))
            if standing_of(ForkFacts(pinned, planned, used)) is ForkStanding.ORPHAN
        ]
        assert orphans == [(False, (), False)]

    @pytest.mark.parametrize(
        ("path", "root"),
        [
            (
                f"tables/t/branches/{SOMEBODY}/metadata/00000000000000000001.metadata.json",
                f"tables/t/branches/{SOMEBODY}",
            ),
            ("tables/t/metadata/00000000000000000001.metadata.json", None),
            ("tables/t/branches/dev/metadata/00000000000000000001.metadata.json", None),
            (f"tables/branches/{SOMEBODY}/data/x.parquet", None),
        ],
    )
    def test_which_fork_a_path_is_in(self, path: str, root: str | None) -> None:
        assert fork_of(path) == (None if root is None else (root, SOMEBODY))
        if root is not None:
            assert incarnation_of(root) == SOMEBODY


@pytest.mark.hazard("P17")
class TestFirstWrite:
    @pytest.mark.parametrize("times", [1, 3])
    def test_orphaned_fork(self, world: PublishWorld, times: int) -> None:
        """The seed's scenario: a fork is there, the branch does not pin it, and no sidecar says why."""
        process = world.process()
        path = fork_path(process)
        put_behind(process, path, times=times)
        process.append({"t1": 7, "t2": 7}, branch="dev")
        assert process.ids("t1", branch="dev") == process.ids("t2", branch="dev") == [0, 7]
        assert process.head_is_pinned("t1", branch="dev")
        assert process.writing.heads.id_in(path, content(process, branch="dev")) == times + 1
        process.append({"t1": 8}, branch="dev")
        assert process.ids("t1", branch="dev") == [0, 7, 8]
        assert process.ids("t1") == [0]
        assert process.actors().count("headwater:recovery") == 0

    def test_nothing_of_an_orphan_gets_into_what_follows_on_it(self, world: PublishWorld) -> None:
        process = world.process()
        document = json.loads(process.files.read(content(process).metadata_location))
        put_behind(process, fork_path(process), json.dumps({**document, "leaked": True}).encode())
        process.append({"t1": 7}, branch="dev")
        assert "leaked" not in json.loads(process.files.read(content(process, branch="dev").metadata_location))

    def test_an_orphan_that_is_no_table_at_all(self, world: PublishWorld) -> None:
        """A tombstone, as a table that was to be made leaves behind."""
        process = world.process()
        put_behind(process, fork_path(process), b'{"properties": {"headwater.tombstone": "x"}}')
        process.append({"t1": 7}, branch="dev")
        assert process.ids("t1", branch="dev") == [0, 7]

    def test_a_writer_that_dies_on_an_orphan_is_recovered(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        put_behind(process, fork_path(process))
        for nth in (1, 2):
            wish = process.wish({"t1": 7, "t2": 7}, branch="dev")
            armed = failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=nth)
            with armed, pytest.raises(PublishOutcomeUnknownError):
                process.writing.publisher.publish(wish)
            world.clock.advance(OVER)
            other.writing.recovery.sweep()
            assert other.ids("t1", branch="dev") == ([0] if nth == 1 else [0, 7])
            assert other.head_is_pinned("t1", branch="dev")
        other.append({"t1": 9}, branch="dev")
        assert other.ids("t1", branch="dev") == [0, 7, 9]

    def test_a_branch_that_was_set_back_before_its_fork(self, world: PublishWorld) -> None:
        process = world.process()
        before = process.catalog.ref("dev")
        process.append({"t1": 7}, branch="dev")
        process.catalog.assign_ref("dev", before.hash, process.catalog.ref("dev").hash)
        process.append({"t1": 8}, branch="dev")
        assert process.ids("t1", branch="dev") == [0, 8]

    def test_a_table_that_comes_to_a_branch_again(self, world: PublishWorld) -> None:
        """As a merge brings it: first it dies and leaves a tombstone, then it lands, is dropped, and comes back."""
        process, other = world.process(), world.process()
        process.create("t9", branch="dev")
        armed = failpoints.arm(Failpoint.PUBLISH_AFTER_SIDECAR, Action.ERROR)
        with armed, pytest.raises((PublishOutcomeUnknownError, failpoints.FailpointError)):
            process.writing.publisher.publish(brought(process, "t9"))
        world.clock.advance(OVER)
        other.writing.recovery.sweep()
        assert other.pinned("t9") is None
        other.writing.publisher.publish(brought(other, "t9"))
        assert other.ids("t9") == [0]
        other.append({"t9": 1})
        drop = TableWish(TableKey.parse("t9"), content(other, "t9"), None)
        other.writing.publisher.publish(replace(brought(other, "t9"), tables=(drop,)))
        assert other.pinned("t9") is None
        other.writing.publisher.publish(brought(other, "t9"))
        assert other.ids("t9") == other.ids("t9", branch="dev") == [0]
        assert other.head_is_pinned("t9")

    def test_a_pending_sidecar_is_a_conflict_that_names_it(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        wish = process.wish({"t1": 7, "t2": 7}, branch="dev")
        armed = failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=1)
        with armed, pytest.raises(PublishOutcomeUnknownError):
            process.writing.publisher.publish(wish)
        with pytest.raises(RecoveryPendingError, match=wish.operation):
            other.append({"t1": 8}, branch="dev")
        assert other.ids("t1", branch="dev") == [0]
        world.clock.advance(OVER)
        other.writing.recovery.sweep()
        other.append({"t1": 8}, branch="dev")
        assert other.ids("t1", branch="dev") == [0, 8]

    def test_of_two_first_writers_one_wins(self, world: PublishWorld) -> None:
        one, other = world.process(), world.process()
        first, second = one.wish({"t1": 1}, branch="dev"), other.wish({"t1": 2}, branch="dev")
        one.writing.publisher.publish(first)
        with pytest.raises(ExpectedVersionMismatchError):
            other.writing.publisher.publish(second)
        assert one.ids("t1", branch="dev") == [0, 1]

    def test_an_indeterminate_fork_is_a_conflict_and_converges(self, world: PublishWorld) -> None:
        store = Silent(world.store)
        process = world.process(store)
        put_behind(process, fork_path(process))
        wish = process.wish({"t1": 7}, branch="dev")
        before = sorted(meta.path for meta in world.store.list())
        store.fails_after = 1  # healing lists the sidecars once, the fork's judge is the second
        with pytest.raises(ConflictError, match="cannot be told now"):
            process.writing.publisher.publish(wish)
        assert sorted(meta.path for meta in world.store.list()) == before
        store.fails_after = None
        process.append({"t1": 7}, branch="dev")
        assert process.ids("t1", branch="dev") == [0, 7]


class TestFailedCreate:
    """Whether the fork was made is told by whether it is there, not by what the store answered."""

    def test_the_answer_was_lost_and_it_is_there(self, world: PublishWorld) -> None:
        store = Losing(world.store, lands=True)
        process = world.process(store)
        wish = process.wish({"t1": 7}, branch="dev")
        store.is_losing = True
        process.writing.publisher.publish(wish)
        assert store.lost == 1
        assert process.ids("t1", branch="dev") == [0, 7]
        assert process.head_is_pinned("t1", branch="dev")

    def test_it_failed_and_is_not_there(self, world: PublishWorld) -> None:
        store = Losing(world.store, lands=False)
        process, other = world.process(store), world.process()
        wish = process.wish({"t1": 7}, branch="dev")
        store.is_losing = True
        with pytest.raises(PublishOutcomeUnknownError):
            process.writing.publisher.publish(wish)
        assert store.lost == 1
        store.is_losing = False
        world.clock.advance(OVER)
        assert other.writing.recovery.settle(wish.operation, branch="dev") is None
        assert other.ids("t1", branch="dev") == [0]
        other.append({"t1": 8}, branch="dev")
        assert other.ids("t1", branch="dev") == [0, 8]


class TestDrift:
    def test_a_head_that_nobody_explains_is_refused_and_named(self, world: PublishWorld) -> None:
        process = world.process()
        path = process.writing.heads.path_for(
            process.version(content(process)).metadata, process.catalog.ref("main").incarnation
        )
        put_behind(process, path, times=2)
        for _ in range(2):
            with pytest.raises(DriftError, match="headwater repair") as caught:
                process.append({"t1": 1, "t2": 1})
            assert caught.value.fields == {"table": "default.t1", "pinned": 1, "latest": 3}
            assert process.ids("t1") == process.ids("t2") == [0]
            assert process.sidecars() == 0
        process.append({"t2": 5})
        assert process.ids("t2") == [0, 5]

    def test_a_race_is_no_drift(self, world: PublishWorld) -> None:
        """Whoever comes second while the winner is between head and commit is told so, and may try again."""
        one, other = world.process(), world.process()
        first, second = one.wish({"t1": 1}), other.wish({"t1": 2})
        armed = failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=1)
        with armed, pytest.raises(PublishOutcomeUnknownError):
            one.writing.publisher.publish(first)
        with pytest.raises(ExpectedVersionMismatchError):
            other.writing.publisher.publish(second)


class Silent(StoreWrapper):
    """A store that stops listing sidecars after so many times."""

    fails_after: int | None = None

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        if prefix == "__recovery" and self.fails_after is not None:
            if self.fails_after == 0:
                raise TransientError(self.name, prefix, "silent")
            self.fails_after -= 1
        return super().list(prefix, start_after=start_after)


class Losing(StoreWrapper):
    """A store that does, or does not do, what it is asked for a fork, and says something else."""

    def __init__(self, inner: ObjectStore, *, lands: bool) -> None:
        super().__init__(inner)
        self._lands = lands
        self.is_losing = False
        self.lost = 0

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        if not self.is_losing or "/branches/" not in path:
            return super().put(path, data, mode, tags=tags)
        self.lost += 1
        if not self._lands:
            raise TransientError(self.name, path, "not done")
        super().put(path, data, mode, tags=tags)
        raise StorageOutcomeUnknownError(self.name, path, "no answer")
