"""Publishing and following the registry: the table of outcomes, the bytes, rollbacks, clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from random import Random
from threading import Event

import pytest

from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import CorruptError, UnavailableError, UsageError
from headwater.kernel.ids import Ulid
from headwater.kernel.metrics import Metrics
from headwater.kernel.retry import RetryPolicy
from headwater.regions.errors import NoRegistryError, RegistryConflictError, RegistryOutcomeUnknownError
from headwater.regions.registry import Registry, parse_registry
from headwater.regions.rollout import Generation, Link, Pointer, Published, Publisher, RegistryClient
from headwater.regions.rollout.client import FAILURES, GENERATION, RELOADS
from headwater.regions.rollout.codec import (
    checksum_of,
    decode_generation,
    decode_pointer,
    encode_generation,
    encode_pointer,
)
from headwater.regions.rollout.decide import Answer, Facts, Seen, Step, in_force, may_follow, next_number, next_step
from headwater.regions.rollout.model import POINTER_PATH, path_of
from headwater.storage.confined import ReadOnlyStore
from headwater.storage.errors import (
    MissingCapabilityError,
    PreconditionFailedError,
    StorageOutcomeUnknownError,
    TransientError,
)
from headwater.storage.memory import MemoryStore
from headwater.storage.port import Create, Fetched, ObjectStore, Overwrite, PutMode
from headwater.storage.wrapper import StoreWrapper

pytestmark = pytest.mark.proves("regions/rollout")

GOLDEN = Path(__file__).parent / "golden"
POLICY = RetryPolicy(attempts=3, first_seconds=0.01, budget_seconds=1)
HOUR = timedelta(hours=1)
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def rules(*sources: str) -> Registry:
    text = "{version: 2, regions: {us: {local_prefix: s3://us/}, eu: {local_prefix: s3://eu/}}, sources: ["
    return parse_registry(text + ", ".join(f"'{each}'" for each in sources) + "]}")


A, B, C = rules("s3://us/"), rules("s3://us/", "s3://eu/"), rules("gs://b/")
FULL = Generation(
    7,
    parse_registry((Path(__file__).parent / "golden" / "registry-2.yaml").read_text()),
    Ulid("01JCQ0000000000000000000AA"),
    "ann",
    NOON,
    NOON + HOUR,
    Link(5, "0" * 64),
    3,
)


class World:
    """A store in memory, its clock, and publishers and clients over it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.metrics = Metrics()

    def publisher(self, store: ObjectStore | None = None) -> Publisher:
        return Publisher(store or self.store, clock=self.clock, randomness=Random(1), policy=POLICY)

    def client(self, store: ObjectStore | None = None) -> RegistryClient:
        return RegistryClient(store or self.store, clock=self.clock, metrics=self.metrics, poll_seconds=30)

    def publish(self, registry: Registry, **options: object) -> Generation:
        return self.publisher().publish(registry, actor="ann", **options)  # type: ignore[arg-type]

    def numbers(self) -> list[int]:
        newest = Published(self.store).newest()
        return [] if newest is None else [each.number for each in Published(self.store).history(newest.pointer)]


@pytest.fixture
def world() -> World:
    return World()


class Meddled(StoreWrapper):
    """Does what a test says at the n-th put, or at each get."""

    def __init__(
        self, inner: ObjectStore, *, puts: Mapping[int, Callable[[Callable[[], str]], str]] | None = None
    ) -> None:
        super().__init__(inner)
        self.puts = 0
        self.down = False
        self._meddle = dict(puts or {})

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        self.puts += 1

        def act() -> str:
            return self._inner.put(path, data, mode, tags=tags)

        return self._meddle[self.puts](act) if self.puts in self._meddle else act()

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        if self.down:
            raise TransientError(self.name, path, "down")
        return self._inner.get(path, span=span)

    def get_if_changed(self, path: str, etag: str) -> Fetched | None:
        if self.down:
            raise TransientError(self.name, path, "down")
        return self._inner.get_if_changed(path, etag)


def lost_after(act: Callable[[], str]) -> str:
    act()
    raise StorageOutcomeUnknownError("m", "p", "lost")


def lost_before(act: Callable[[], str]) -> str:
    raise StorageOutcomeUnknownError("m", "p", "lost")


class TestDecisions:
    @pytest.mark.parametrize(
        ("facts", "step"),
        [
            (Facts(Answer.DONE, ever_lost=False), Step.COMMITTED),
            (Facts(Answer.DONE, ever_lost=True), Step.COMMITTED),
            (Facts(Answer.REFUSED, ever_lost=False), Step.CONFLICT),
            (Facts(Answer.REFUSED, ever_lost=True), Step.READ_POINTER),
            (Facts(Answer.LOST, ever_lost=True), Step.READ_POINTER),
            (Facts(Answer.LOST, ever_lost=True, seen=Seen.OURS), Step.COMMITTED),
            (Facts(Answer.REFUSED, ever_lost=True, seen=Seen.OURS), Step.COMMITTED),
            (Facts(Answer.LOST, ever_lost=True, seen=Seen.AS_BEFORE), Step.SWAP_AGAIN),
            (Facts(Answer.LOST, ever_lost=True, seen=Seen.AS_BEFORE, may_swap=False), Step.UNKNOWN),
            (Facts(Answer.LOST, ever_lost=True, seen=Seen.MOVED), Step.READ_HISTORY),
            (Facts(Answer.LOST, True, Seen.MOVED, in_history=True, history_is_read=True), Step.COMMITTED),
            (Facts(Answer.LOST, True, Seen.MOVED, in_history=False, history_is_read=True), Step.CONFLICT),
            (Facts(Answer.LOST, True, Seen.MOVED, in_history=None, history_is_read=True), Step.UNKNOWN),
        ],
    )
    def test_each_row(self, facts: Facts, step: Step) -> None:
        assert next_step(facts) is step

    def test_a_conflict_is_only_told_when_it_is_proven(self) -> None:
        for answer, lost, seen, history, read, swap in product(
            Answer, (True, False), (None, *Seen), (None, True, False), (True, False), (True, False)
        ):
            facts = Facts(answer, lost, seen, history, read, swap)
            if next_step(facts) is Step.CONFLICT:
                proven = (seen is Seen.MOVED and read and history is False) or not lost
                assert answer is not Answer.DONE
                assert proven

    def test_numbers_only_grow(self) -> None:
        pointer = Pointer(Link(4, ""), NOON)
        assert next_number(None, 0) == 1
        assert next_number(pointer, 0) == 5
        assert next_number(pointer, 7) == 8

    def test_the_newest_whose_time_has_come_is_in_force(self) -> None:
        def at(number: int, hours: int) -> Generation:
            return replace(FULL, number=number, valid_from=NOON + hours * HOUR)

        chain = [at(3, 2), at(2, 0), at(1, 1)]
        assert in_force(chain, NOON - HOUR) is None
        assert [in_force(chain, NOON + hours * HOUR) for hours in (0, 1, 2)] == [chain[1], chain[1], chain[0]]

    @pytest.mark.hazard("R10")
    def test_r10_a_client_never_goes_back(self) -> None:
        assert may_follow(Link(3, "a"), Link(3, "a"))
        assert may_follow(Link(3, "a"), Link(4, "b"))
        assert not may_follow(Link(3, "a"), Link(3, "b"))
        assert not may_follow(Link(4, "b"), Link(3, "a"))


class TestBytes:
    def test_the_golden_files(self) -> None:
        assert encode_generation(FULL) == (GOLDEN / "registry-generation-1.json").read_bytes()
        assert decode_generation((GOLDEN / "registry-generation-1.json").read_bytes(), "x") == FULL
        pointer = Pointer(Link(7, checksum_of(encode_generation(FULL))), FULL.valid_from)
        assert encode_pointer(pointer) == (GOLDEN / "registry-current-1.json").read_bytes()
        assert decode_pointer((GOLDEN / "registry-current-1.json").read_bytes(), "x") == pointer

    @pytest.mark.parametrize("decode", [decode_generation, decode_pointer])
    @pytest.mark.parametrize(
        "data", [b"", b"[]", b"7", b"{}", b'{"format": 1}', b"\xff", b'{"format": 1, "sha256": ""}']
    )
    def test_what_is_none_of_ours(self, decode: Callable[[bytes, str], object], data: bytes) -> None:
        with pytest.raises(CorruptError, match="x is damaged"):
            decode(data, "x")

    def test_a_newer_format_is_refused(self) -> None:
        for name, decode in (
            ("registry-generation-1.json", decode_generation),
            ("registry-current-1.json", decode_pointer),
        ):
            values = {**json.loads((GOLDEN / name).read_bytes()), "format": 2}
            with pytest.raises(CorruptError, match="format 2, newer than 1"):
                decode(json.dumps(values).encode(), "x")

    @pytest.mark.parametrize("name", ["registry-generation-1.json", "registry-current-1.json"])
    def test_every_change_of_the_bytes_is_noticed(self, name: str) -> None:
        data = (GOLDEN / name).read_bytes()
        decode = decode_generation if "generation" in name else decode_pointer
        for place in range(0, len(data), 7):
            changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            with pytest.raises(CorruptError):
                decode(changed, "x")

    def test_rules_that_do_not_hold_are_damage(self) -> None:
        bad = replace(FULL, registry=Registry(FULL.registry.regions, ("s3://no-slash",)))
        with pytest.raises(CorruptError, match="holds rules that do not hold"):
            decode_generation(encode_generation(bad), "x")


class TestPublishing:
    def test_one_after_the_other(self, world: World) -> None:
        first, second = world.publish(A), world.publish(B)
        assert (first.number, first.previous) == (1, None)
        assert second.number == 2
        assert second.previous == Link(1, checksum_of(world.store.get(path_of(1)).data))
        assert Published(world.store).in_force(world.clock.now()) == second
        assert world.numbers() == [2, 1]
        pointer = json.loads(world.store.get("registry/current.json").data)
        assert {"generation", "checksum", "valid_from"} <= set(pointer)
        assert pointer["checksum"] == checksum_of(world.store.get("registry/v2/registry-2.json").data)

    def test_the_same_rules_are_not_published_again(self, world: World) -> None:
        first = world.publish(A)
        assert world.publish(A) == first
        assert world.numbers() == [1]
        assert world.publish(A, valid_from=world.clock.now() + HOUR).number == 2
        assert world.publish(A).number == 3, "the newest is not in force yet"

    def test_only_while_the_expected_one_is_the_newest(self, world: World) -> None:
        world.publish(A, expected=0)
        with pytest.raises(RegistryConflictError, match="generation 1 is the newest, not 0"):
            world.publish(B, expected=0)
        assert world.numbers() == [1]
        assert world.publish(B, expected=1).number == 2

    def test_where_nothing_was_published_no_generation_is_expected(self, world: World) -> None:
        with pytest.raises(RegistryConflictError, match="nothing was published yet: 3 is not the newest"):
            world.publish(A, expected=3)
        assert not world.store.exists(path_of(1))

    @pytest.mark.hazard("R10")
    def test_r10_a_rollback_is_a_new_generation(self, world: World) -> None:
        world.publish(A)
        world.publish(B)
        back = world.publisher().rollback(1, actor="bob")
        assert (back.number, back.registry, back.restores, back.actor) == (3, A, 1, "bob")
        assert world.numbers() == [3, 2, 1]
        assert world.publisher().rollback(2, actor="bob").registry == B

    def test_a_rollback_to_what_never_was_in_force_is_refused(self, world: World) -> None:
        world.publish(A)
        world.store.put(path_of(2), world.store.get(path_of(1)).data, Create())  # what a dead publisher left
        world.publish(B)
        assert world.numbers() == [3, 1]
        for number in (2, 4, 0, 9):
            with pytest.raises(UsageError, match=f"generation {number} was never in force"):
                world.publisher().rollback(number, actor="bob")
        with pytest.raises(UsageError, match="generation 3 is the newest one"):
            world.publisher().rollback(3, actor="bob")
        assert world.numbers() == [3, 1]

    def test_nothing_is_rolled_back_where_nothing_was_published(self, world: World) -> None:
        with pytest.raises(NoRegistryError):
            world.publisher().rollback(1, actor="bob")
        with pytest.raises(NoRegistryError):
            Published(world.store).in_force(world.clock.now())

    def test_a_moment_without_a_zone_is_refused(self, world: World) -> None:
        with pytest.raises(UsageError, match="no time zone"):
            world.publish(A, valid_from=datetime(2027, 1, 1))  # noqa: DTZ001
        assert world.store.exists(path_of(1)) is False

    def test_a_store_that_cannot_compare_is_refused(self, world: World) -> None:
        with pytest.raises(MissingCapabilityError):
            world.publisher(ReadOnlyStore(world.store))

    def test_two_at_once_are_a_conflict_for_one(self, world: World) -> None:
        world.publish(A)

        def others_first(act: Callable[[], str]) -> str:
            world.publish(C)
            return act()

        with pytest.raises(RegistryConflictError, match="somebody else published") as caught:
            world.publisher(Meddled(world.store, puts={2: others_first})).publish(B, actor="bob")
        assert caught.value.exit_code == 3
        assert world.numbers() == [3, 1], "the number of the loser stays taken"
        assert Published(world.store).in_force(world.clock.now()).registry == C

    def test_two_at_once_for_one_number(self, world: World) -> None:
        world.publish(A)

        def others_first(act: Callable[[], str]) -> str:
            world.publish(C)
            return act()

        with pytest.raises(RegistryConflictError):
            world.publisher(Meddled(world.store, puts={1: others_first})).publish(B, actor="bob")
        assert world.numbers() == [2, 1]

    @pytest.mark.parametrize("number", [1, 2])
    @pytest.mark.parametrize("loss", [lost_after, lost_before])
    def test_a_lost_answer_is_settled(
        self, world: World, number: int, loss: Callable[[Callable[[], str]], str]
    ) -> None:
        world.publish(A)
        made = world.publisher(Meddled(world.store, puts={number: loss})).publish(B, actor="bob")
        assert made.number == 2
        assert world.numbers() == [2, 1]

    def test_a_lost_swap_that_others_have_built_upon_is_done(self, world: World) -> None:
        world.publish(A)

        def overtaken(act: Callable[[], str]) -> str:
            act()
            world.publish(C)
            world.publish(A)
            raise StorageOutcomeUnknownError("m", "p", "lost")

        made = world.publisher(Meddled(world.store, puts={2: overtaken})).publish(B, actor="bob")
        assert made.number == 2
        assert world.numbers() == [4, 3, 2, 1]

    def test_a_lost_swap_that_others_have_passed_is_a_conflict(self, world: World) -> None:
        world.publish(A)

        def passed(act: Callable[[], str]) -> str:
            world.publish(C)
            raise StorageOutcomeUnknownError("m", "p", "lost")

        with pytest.raises(RegistryConflictError):
            world.publisher(Meddled(world.store, puts={2: passed})).publish(B, actor="bob")
        assert world.numbers() == [3, 1]

    def test_our_own_success_does_not_refuse_us(self, world: World) -> None:
        """The first swap lands late, after the second was sent: the second is refused by the first."""
        world.publish(A)
        waiting: list[Callable[[], str]] = []

        def late(act: Callable[[], str]) -> str:
            waiting.append(act)
            raise StorageOutcomeUnknownError("m", "p", "lost")

        def after_it(act: Callable[[], str]) -> str:
            waiting[0]()
            with pytest.raises(PreconditionFailedError):
                act()
            raise PreconditionFailedError("m", "p", "as before")

        made = world.publisher(Meddled(world.store, puts={2: late, 3: after_it})).publish(B, actor="bob")
        assert made.number == 2
        assert world.numbers() == [2, 1]

    def test_what_cannot_be_settled_is_unknown(self, world: World) -> None:
        world.publish(A)
        lost = dict.fromkeys(range(2, 9), lost_before)
        with pytest.raises(RegistryOutcomeUnknownError, match="generation 2 was published is not known") as caught:
            world.publisher(Meddled(world.store, puts=lost)).publish(B, actor="bob")
        stored = json.loads(world.store.get(path_of(2)).data)
        assert caught.value.operation == stored["writer"]
        assert world.numbers() == [1]

    def test_a_store_that_falls_silent_after_the_swap_leaves_it_unknown(self, world: World) -> None:
        world.publish(A)

        def silent(act: Callable[[], str]) -> str:
            act()
            store.down = True
            raise StorageOutcomeUnknownError("m", "p", "lost")

        store = Meddled(world.store, puts={2: silent})
        with pytest.raises(RegistryOutcomeUnknownError):
            world.publisher(store).publish(B, actor="bob")

    def test_an_object_that_cannot_be_stored_changes_nothing(self, world: World) -> None:
        world.publish(A)
        with pytest.raises(UnavailableError, match="nothing was published"):
            world.publisher(Meddled(world.store, puts=dict.fromkeys(range(1, 9), lost_before))).publish(B, actor="b")
        assert world.numbers() == [1]

    def test_a_damaged_generation_is_replaced_by_the_next(self, world: World) -> None:
        world.publish(A)
        world.store.put(path_of(1), b"rubbish", Overwrite())
        assert world.publish(B).number == 2
        assert Published(world.store).in_force(world.clock.now()).registry == B

    def test_a_damaged_pointer_is_deleted_and_numbers_go_on(self, world: World) -> None:
        world.publish(A)
        world.publish(B)
        client = world.client()
        assert client.current().number == 2
        world.store.put(POINTER_PATH, b"rubbish", Overwrite())
        with pytest.raises(CorruptError, match="delete it, and publish the registry again"):
            world.publish(C)
        world.store.delete(POINTER_PATH)
        assert world.publish(C).number == 3
        assert client.refresh().registry == C


class TestFollowing:
    def test_new_work_gets_the_new_one_and_running_work_keeps_its_own(self, world: World) -> None:
        world.publish(A)
        client = world.client()
        running = client.current()
        world.publish(B)
        assert client.current() is running, "not polled yet"
        world.clock.sleep(30)
        assert client.current().registry == B
        assert running.registry == A
        assert running.resolver("eu").destination("s3://us/x") == "s3://eu/x"
        assert world.metrics.value(GENERATION) == 2
        assert world.metrics.value(RELOADS) == 2
        assert world.metrics.value(FAILURES) == 0

    def test_dashboards_know_the_metrics_by_these_names(self) -> None:
        names = [each.name for each in (GENERATION, RELOADS, FAILURES)]
        assert names == ["registry_generation", "registry_reload_success_total", "registry_reload_failure_total"]

    def test_a_poll_that_finds_nothing_new_is_no_reload(self, world: World) -> None:
        world.publish(A)
        client = world.client()
        for _ in range(3):
            client.refresh()
        assert world.metrics.value(RELOADS) == 1

    def test_the_last_good_one_stays_when_the_store_is_down(self, world: World) -> None:
        world.publish(A)
        store = Meddled(world.store)
        client = world.client(store)
        good = client.current()
        store.down = True
        assert client.refresh() is good
        assert world.metrics.value(FAILURES) == 1
        store.down = False
        world.publish(B)
        assert client.refresh().number == 2

    @pytest.mark.parametrize("path", [path_of(2), POINTER_PATH])
    def test_the_last_good_one_stays_when_what_is_new_is_damaged(self, world: World, path: str) -> None:
        world.publish(A)
        client = world.client()
        good = client.current()
        world.publish(B)
        sound = world.store.get(path).data
        world.store.put(path, sound.replace(b'"generation":2', b'"generation":3'), Overwrite())
        for expected in (1, 2):
            assert client.refresh() is good
            assert world.metrics.value(FAILURES) == expected
        world.store.put(path, sound, Overwrite())
        assert client.refresh().number == 2

    def test_a_wrong_checksum_is_named(self, world: World) -> None:
        world.publish(A)
        other = encode_generation(replace(FULL, number=1))
        world.store.put(path_of(1), other, Overwrite())
        with pytest.raises(CorruptError, match=r"registry-1\.json does not have the checksum") as caught:
            world.client().current()
        assert caught.value.fields["actual"] == checksum_of(other)

    def test_who_polls_during_a_publication_sees_the_old_one_or_the_new_one(self, world: World) -> None:
        world.publish(A)
        client, beginners = world.client(), list[Generation]()
        seen: list[Generation] = []

        def watched(act: Callable[[], str]) -> str:
            seen.append(client.refresh())
            beginners.append(world.client().current())
            etag = act()
            seen.append(client.refresh())
            beginners.append(world.client().current())
            return etag

        made = world.publisher(Meddled(world.store, puts={1: watched, 2: watched})).publish(B, actor="bob")
        assert [each.number for each in seen] == [1, 1, 1, 2]
        assert [each.number for each in beginners] == [1, 1, 1, 2]
        assert seen[-1] == beginners[-1] == made
        assert world.metrics.value(FAILURES) == 0

    def test_many_publish_and_many_follow(self, world: World) -> None:
        """Whoever was told that it is done is in the history, once; of conflicts nothing is; clients only go up."""
        world.publish(A)
        done: list[int] = []
        polled: list[list[int]] = [[], []]
        ended = Event()

        def publish(writer: int) -> None:
            for turn in range(6):
                rules = replace(A, sources=(*A.sources, f"s3://w{writer}-{turn}/"))
                with suppress(RegistryConflictError):
                    done.append(world.publisher().publish(rules, actor=str(writer)).number)

        def follow(numbers: list[int]) -> None:
            client = world.client()
            while not ended.is_set():
                numbers.append(client.refresh().number)

        with ThreadPoolExecutor(6) as pool:
            followers = [pool.submit(follow, each) for each in polled]
            for each in [pool.submit(publish, writer) for writer in range(4)]:
                each.result(30)
            ended.set()
            for each in followers:
                each.result(30)
        assert sorted(world.numbers()) == [1, *sorted(done)]
        assert len(done) >= 6, "of those who meet, one wins"
        for numbers in polled:
            assert numbers == sorted(numbers)
        assert world.metrics.value(FAILURES) == 0

    @pytest.mark.hazard("R10")
    def test_r10_a_pointer_that_went_back_is_not_followed(self, world: World) -> None:
        world.publish(A)
        old = world.store.get(POINTER_PATH).data
        world.publish(B)
        client = world.client()
        assert client.current().number == 2
        world.store.put(POINTER_PATH, old, Overwrite())
        assert client.refresh().number == 2
        assert world.metrics.value(FAILURES) == 1

    def test_a_pointer_that_is_gone_is_not_taken_for_nothing(self, world: World) -> None:
        world.publish(A)
        client = world.client()
        good = client.current()
        world.store.delete(POINTER_PATH)
        assert client.refresh() is good
        assert world.metrics.value(FAILURES) == 1

    def test_what_is_not_in_force_yet_waits(self, world: World) -> None:
        world.publish(A)
        world.publish(B, valid_from=world.clock.now() + HOUR)
        client = world.client()
        assert client.current().registry == A, "a client that begins now"
        world.clock.advance(HOUR)
        assert client.current().registry == B
        assert Published(world.store).in_force(world.clock.now()).registry == B

    def test_its_time_comes_without_another_poll(self, world: World) -> None:
        world.publish(A)
        world.publish(B, valid_from=world.clock.now() + timedelta(seconds=5))
        store = Meddled(world.store)
        client = world.client(store)
        assert client.current().registry == A
        store.down = True
        world.clock.sleep(6)
        assert client.current().registry == B
        assert world.metrics.value(FAILURES) == 0

    def test_a_rollback_overtakes_what_was_to_come(self, world: World) -> None:
        world.publish(A)
        world.publish(B, valid_from=world.clock.now() + HOUR)
        world.publisher().rollback(1, actor="ann")
        client = world.client()
        for _ in range(2):
            assert client.refresh().number == 3
            world.clock.advance(2 * HOUR)

    def test_a_thread_that_polls_holds_up_no_other(self, world: World) -> None:
        world.publish(A)
        store = Meddled(world.store)
        client = world.client(store)
        good = client.current()
        world.clock.sleep(60)
        inside, go_on = Event(), Event()

        def stuck(path: str, etag: str) -> Fetched | None:
            inside.set()
            assert go_on.wait(30)
            return world.store.get_if_changed(path, etag)

        store.get_if_changed = stuck  # type: ignore[method-assign]
        with ThreadPoolExecutor(1) as pool:
            polling = pool.submit(client.current)
            assert inside.wait(30)
            assert client.current() is good
            go_on.set()
            assert polling.result(30) is good

    def test_where_nothing_is_in_force_there_is_nothing_to_hand_out(self, world: World) -> None:
        with pytest.raises(NoRegistryError, match="no registry was published"):
            world.client().current()
        world.publish(A, valid_from=world.clock.now() + HOUR)
        with pytest.raises(NoRegistryError, match="in force from"):
            world.client().current()
        assert world.metrics.value(FAILURES) == 0
        with pytest.raises(NoRegistryError, match=r"the first registry of memory:// is in force from .*T01:00"):
            Published(world.store).in_force(world.clock.now())

    def test_the_moment_from_which_something_is_in_force(self, world: World) -> None:
        """It is that of the earliest, which need not be the first that was published, nor the last."""
        for hours in (3, 1, 2):
            world.publish(A if hours == 1 else B, valid_from=world.clock.now() + hours * HOUR)
        for ask in (world.client().current, lambda: Published(world.store).in_force(world.clock.now())):
            with pytest.raises(NoRegistryError, match=r"in force from .*T01:00"):
                ask()
        world.clock.advance(HOUR)
        assert world.client().current().registry == A
        assert Published(world.store).in_force(world.clock.now()).registry == A
