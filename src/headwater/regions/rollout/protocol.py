"""Publishing the registry: an immutable object for each generation, and one pointer to the newest.

Promise: everybody who reads the pointer sees a whole generation, and generations only grow. A publication that was
reported as done is in the history of the pointer; one that was reported as a conflict is not, and never will be.

Invariants:

    1  A generation is stored before the pointer names it, is never changed, and is never deleted.
    2  The pointer is swapped only on the condition that it is still what the publication was built on, and only to a
       higher generation. So no publisher overwrites what it has not seen.
    3  A generation names the one before it, by number and checksum. Whether a publication landed can be told from that
       history, however many others came after it.
    4  A rollback is a new generation with old rules (hazard R10): the pointer never goes back, so that a client can
       tell a rollback from a stale answer.

Commit point: the swap of `registry/current.json`. What a crash after each step leaves behind:

    store     an object that nothing names. Its number stays taken; the next publisher takes a higher one
    swap      nothing: the generation is in force from its `valid_from` on

Nobody publishes on top of what they did not read: two publishers at once are a conflict for one of them, who looks at
what the other changed and decides again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from headwater.kernel.clock import Clock
from headwater.kernel.errors import CorruptError, HeadwaterError, UnavailableError, UsageError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.logs import Log
from headwater.kernel.randomness import Randomness
from headwater.kernel.retry import Retry, RetryPolicy
from headwater.regions.errors import RegistryConflictError, RegistryOutcomeUnknownError
from headwater.regions.registry.model import Registry
from headwater.regions.rollout.codec import checksum_of, encode_generation, encode_pointer
from headwater.regions.rollout.decide import Answer, Facts, Seen, Step, next_number, next_step
from headwater.regions.rollout.model import POINTER_PATH, Generation, Link, Pointer, path_of
from headwater.regions.rollout.published import Newest, Published
from headwater.storage.errors import ObjectNotFoundError, PreconditionFailedError, StorageOutcomeUnknownError
from headwater.storage.port import Capability, Create, ObjectStore, Update, require

WRITING = frozenset({Capability.CREATE, Capability.UPDATE})

_log = Log("regions.rollout")


class Publisher(Published):
    """The same, to be published to."""

    def __init__(self, store: ObjectStore, *, clock: Clock, randomness: Randomness, policy: RetryPolicy) -> None:
        require(store, WRITING, by="the registry")
        super().__init__(store)
        self._clock = clock
        self._randomness = randomness
        self._retry = Retry(policy, clock, randomness)

    def publish(
        self, registry: Registry, *, actor: str, valid_from: datetime | None = None, expected: int | None = None
    ) -> Generation:
        """Make these rules the newest generation, in force from now or `valid_from`.

        With `expected` only while that generation is the newest; 0 means none. Rules that are in force already, with
        no other `valid_from`, are not published again: the newest generation is the answer.
        """
        newest = self._expect(expected)
        if newest is not None and valid_from is None:
            present = self._readable(newest.pointer)
            if present is not None and present.registry == registry and present.valid_from <= self._clock.now():
                return present
        return self._publish(newest, registry, actor, valid_from)

    def rollback(self, number: int, *, actor: str, expected: int | None = None) -> Generation:
        """Take up the rules of an earlier generation again, in a new one that is in force at once."""
        newest = self._expect(expected) or self.newest_or_refuse()
        old = self.find(newest.pointer, number)
        if number == newest.pointer.link.generation:
            raise UsageError(f"generation {number} is the newest one", hint="name an earlier one", generation=number)
        return self._publish(newest, old.registry, actor, None, restores=number)

    def _expect(self, expected: int | None) -> Newest | None:
        newest = self.newest()
        present = 0 if newest is None else newest.pointer.link.generation
        if expected is not None and expected != present:
            known = f"generation {present} is the newest" if present else "nothing was published yet"
            raise RegistryConflictError(
                f"{known}, not {expected}" if present else f"{known}: {expected} is not the newest",
                generation=present,
                hint="look at what is there (`headwater registry show --history`), then publish again",
            )
        return newest

    def _readable(self, pointer: Pointer) -> Generation | None:
        """The newest generation; None when it is damaged, for then a new one is the cure."""
        try:
            return self.load(pointer.link)
        except CorruptError as error:
            _log.warning("the newest generation is damaged", generation=pointer.link.generation, error=error.message)
            return None

    def _publish(
        self,
        newest: Newest | None,
        registry: Registry,
        actor: str,
        valid_from: datetime | None,
        restores: int | None = None,
    ) -> Generation:
        now = self._clock.now()
        if valid_from is not None and valid_from.tzinfo is None:
            raise UsageError(f"{valid_from.isoformat()} has no time zone", hint="like 2026-11-15T09:30Z")
        generation = Generation(
            0,
            registry,
            new_ulid(self._clock, self._randomness),
            actor,
            now,
            valid_from or now,
            newest.pointer.link if newest is not None else None,
            restores,
        )
        generation, checksum = self._store_generation(generation, newest)
        hit(Failpoint.REGISTRY_AFTER_OBJECT)
        self._swap(newest, Pointer(Link(generation.number, checksum), generation.valid_from), generation.writer)
        hit(Failpoint.REGISTRY_AFTER_POINTER)
        _log.info("published", generation=generation.number, actor=actor, restores=restores)
        return generation

    def _store_generation(self, draft: Generation, newest: Newest | None) -> tuple[Generation, str]:
        """Store it under the first number that is free. Until the pointer names it, nothing has happened."""
        taken = 0
        while True:
            number = next_number(newest.pointer if newest is not None else None, taken)
            generation = replace(draft, number=number)
            data = encode_generation(generation)
            if self._create(path_of(number), data):
                return generation, checksum_of(data)
            taken = number

    def _create(self, path: str, data: bytes) -> bool:
        """Whether the object is ours; the writer's identity is in its bytes."""
        patience = self._retry.patience()
        while True:
            try:
                self._store.put(path, data, Create())
            except (PreconditionFailedError, StorageOutcomeUnknownError) as error:
                try:
                    return self._store.get(path).data == data
                except ObjectNotFoundError:
                    if patience.wait():
                        continue
                    raise UnavailableError(f"nothing was published: {error.message}", hint="try again") from error
            else:
                return True

    def _swap(self, newest: Newest | None, pointer: Pointer, writer: Ulid) -> None:
        """Swap the pointer and find out what became of it, as `decide.next_step` says."""
        data, patience = encode_pointer(pointer), self._retry.patience()
        mode = Create() if newest is None else Update(newest.etag)

        def swap() -> Answer:
            try:
                self._store.put(POINTER_PATH, data, mode)
            except PreconditionFailedError:
                return Answer.REFUSED
            except StorageOutcomeUnknownError:
                return Answer.LOST
            return Answer.DONE

        answer = swap()  # an error here means that nothing happened
        facts = Facts(answer, ever_lost=answer is Answer.LOST)
        try:
            step = self._settle(facts, newest, pointer, swap, patience.wait)
        except HeadwaterError as error:
            raise RegistryOutcomeUnknownError(pointer.link.generation, writer, error.message) from error
        if step is Step.UNKNOWN:
            raise RegistryOutcomeUnknownError(pointer.link.generation, writer, "the store did not answer")
        if step is Step.CONFLICT:
            raise RegistryConflictError(
                f"somebody else published while generation {pointer.link.generation} was on its way",
                generation=pointer.link.generation,
                hint="look at what was published since, then publish again",
            )

    def _settle(
        self,
        facts: Facts,
        newest: Newest | None,
        pointer: Pointer,
        swap: Callable[[], Answer],
        wait: Callable[[], bool],
    ) -> Step:
        while True:
            step = next_step(facts)
            match step:
                case Step.READ_POINTER:
                    facts = replace(facts, seen=self._seen(newest, pointer))
                case Step.READ_HISTORY:
                    facts = replace(facts, in_history=self._in_history(pointer.link), history_is_read=True)
                case Step.SWAP_AGAIN if wait():
                    facts = Facts(swap(), ever_lost=True)
                case Step.SWAP_AGAIN:
                    facts = replace(facts, may_swap=False)
                case Step.COMMITTED | Step.CONFLICT | Step.UNKNOWN:
                    return step

    def _seen(self, before: Newest | None, pointer: Pointer) -> Seen:
        now = self.newest()
        if now is not None and now.pointer.link == pointer.link:
            return Seen.OURS
        return Seen.AS_BEFORE if (now and now.etag) == (before and before.etag) else Seen.MOVED

    def _in_history(self, link: Link) -> bool | None:
        newest = self.newest()
        if newest is None:
            return None
        if newest.pointer.link == link:
            return True
        try:
            for generation in self.history(newest.pointer):
                if generation.previous == link:
                    return True
                if generation.number <= link.generation:
                    return False
        except CorruptError:
            return None
        return False
