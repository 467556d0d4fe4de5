"""Pins: what they keep, and when they are refused."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from headwater.kernel.errors import UsageError
from headwater.sequence.collect import Collector
from headwater.sequence.model import (
    Entry,
    PinLostError,
    Retention,
)
from headwater.sequence.pins import Pins
from headwater.storage.errors import (
    PreconditionFailedError,
)
from tests.unit.sequence_world import (
    MIN_AGE,
    NAMESPACE,
    LosesPuts,
    World,
    lose,
)


@pytest.fixture
def world() -> World:
    return World()


class TestPins:
    TTL = timedelta(hours=1)

    def test_a_pin_keeps_its_object_until_it_is_released(self, world: World) -> None:
        entries = world.append(3)
        pins = Pins(world.open())
        pin = pins.pin(entries[0], ttl=self.TTL, holder="query")
        world.append(2)
        world.collect()
        assert world.ids() == [1, 5]
        assert world.other().read(1) == entries[0]
        pins.release(pin)
        world.collect()
        assert world.ids() == [5]

    def test_an_expired_pin_is_dropped(self, world: World) -> None:
        entries = world.append(3)
        Pins(world.open()).pin(entries[0], ttl=timedelta(seconds=90), holder="query")
        world.collect()
        assert world.ids() == [3]
        assert Pins(world.other()).records() == ()

    def test_renewing_keeps_it(self, world: World) -> None:
        entries = world.append(3)
        pins = Pins(world.open())
        pin = pins.pin(entries[0], ttl=timedelta(seconds=150), holder="query")
        world.collect()
        pin = pins.renew(pin, ttl=timedelta(seconds=150))
        world.collect()
        assert world.ids() == [1, 3]
        assert [record.pins for record in Pins(world.other()).records()] == [(pin.pin,)]

    def test_renewing_too_late_is_refused(self, world: World) -> None:
        entries = world.append(3)
        pins = Pins(world.open())
        pin = pins.pin(entries[0], ttl=timedelta(seconds=30), holder="query")
        world.collect()
        with pytest.raises(PinLostError):
            pins.renew(pin, ttl=self.TTL)

    @pytest.mark.hazard("S4")
    def test_s4_a_pin_behind_the_boundary_is_refused(self, world: World) -> None:
        entries = world.append(3)
        world.other().boundary.advance(1)
        pins = Pins(world.open())
        with pytest.raises(PinLostError, match=r"00000000000000000001\.manifest"):
            pins.pin(entries[0], ttl=self.TTL, holder="query")
        assert [record.pins for record in pins.records()] == [()]

    @pytest.mark.hazard("S4")
    def test_s4_the_boundary_is_read_after_the_pin_was_written(self, world: World) -> None:
        """The collector lists pins, the client pins and looks, the collector advances and deletes."""
        entries = world.append(3)
        pins = Pins(world.open())
        world.store.before("put", ".json", lambda: world.collect())
        with pytest.raises(PinLostError):
            pins.pin(entries[0], ttl=self.TTL, holder="query")

    @pytest.mark.hazard("S4")
    def test_s4_the_collector_reads_pins_after_it_advanced(self, world: World) -> None:
        entries = world.append(3)
        world.clock.advance(MIN_AGE * 2)
        granted = []
        world.store.before(
            "put", ".boundary", lambda: granted.append(Pins(world.other()).pin(entries[0], ttl=self.TTL, holder="q"))
        )
        Collector(world.open(), Retention(MIN_AGE, timedelta(0))).collect()
        assert granted
        assert world.ids() == [1, 3]

    def test_a_granted_pin_vouches_for_another_behind_the_boundary(self, world: World) -> None:
        entries = world.append(3)
        pins = Pins(world.open())
        pins.pin(entries[0], ttl=self.TTL, holder="first")
        world.collect()
        assert pins.pin(entries[0], ttl=self.TTL, holder="second").pin.granted

    @pytest.mark.hazard("S4")
    def test_s4_a_pin_does_not_vouch_for_a_zombie_at_its_id(self, world: World) -> None:
        entries = world.append(3)
        pins = Pins(world.open())
        pins.pin(entries[0], ttl=self.TTL, holder="first")
        world.collect()
        zombie = Entry(1, entries[2].writer, None, b"zombie")
        with pytest.raises(PinLostError):
            pins.pin(zombie, ttl=self.TTL, holder="second")

    @pytest.mark.hazard("S7")
    def test_s7_two_pins_that_come_too_late_do_not_vouch_for_each_other(self, world: World) -> None:
        entries = world.append(3)
        world.collect()
        refused = []

        def second() -> None:
            try:
                Pins(world.other()).pin(entries[0], ttl=self.TTL, holder="second")
            except PinLostError as error:
                refused.append(error)

        # The second asks after the first has asked and before the first looks around.
        world.store.after("put", ".json", second)
        with pytest.raises(PinLostError):
            Pins(world.open()).pin(entries[0], ttl=self.TTL, holder="first")
        assert refused

    def test_a_lost_answer_to_the_pin(self, world: World) -> None:
        entries = world.append(3)
        world.store.after("put", ".json", lose)
        pin = Pins(world.open()).pin(entries[0], ttl=self.TTL, holder="query")
        assert [record.pins for record in Pins(world.other()).records()] == [(pin.pin,)]

    @pytest.mark.hazard("S9")
    def test_s9_a_pin_renewed_while_the_collector_reads_keeps_its_object(self, world: World) -> None:
        """The collector has listed the record; before it reads it, the old pin is replaced by a new one."""
        entries = world.append(3)
        pins = Pins(world.other())
        pin = pins.pin(entries[0], ttl=timedelta(minutes=10), holder="query")
        world.clock.advance(MIN_AGE * 2)
        renewed = []
        world.store.after("list", "manifest.pins", lambda: renewed.append(pins.renew(pin, ttl=self.TTL)))
        Collector(world.open(), Retention(MIN_AGE, timedelta(0))).collect()
        assert renewed
        assert world.ids() == [1, 3]

    @pytest.mark.hazard("S9")
    def test_s9_a_record_that_is_gone_when_it_is_read_still_counts(self, world: World) -> None:
        entries = world.append(3)
        Pins(world.other()).pin(entries[0], ttl=self.TTL, holder="query")
        world.clock.advance(MIN_AGE * 2)
        record = "lake/gc/manifest.pins/00000000000000000001.json"
        # It vanishes between the list and the read that follow the advance.
        world.store.after(
            "put", ".boundary", lambda: world.store.before("get", record, lambda: world.memory.delete(record))
        )
        Collector(world.open(), Retention(MIN_AGE, timedelta(0))).collect()
        assert world.ids() == [1, 3]

    @pytest.mark.hazard("S9")
    def test_s9_a_vouching_pin_that_ends_before_ours_is_written_vouches_no_more(self, world: World) -> None:
        """Read while it lasted, but a collector may have judged it ended before our pin was there to be seen."""
        entries = world.append(3)
        Pins(world.other()).pin(entries[0], ttl=MIN_AGE * 3, holder="first")
        world.collect()

        def meanwhile() -> None:
            # A collector judges the first pin ended, deletes the object, and dies before it drops the record.
            world.clock.advance(MIN_AGE * 2)
            world.memory.delete(NAMESPACE.path_of(1))

        # The client stalls between reading the record and swapping it.
        world.store.before("put", ".json", meanwhile)
        with pytest.raises(PinLostError):
            Pins(world.open()).pin(entries[0], ttl=self.TTL, holder="second")
        assert world.ids() == [3]

    @pytest.mark.hazard("S13")
    def test_s13_puts_that_land_late_revive_no_pin(self, world: World) -> None:
        """Asking and granting each lose an answer and are repeated; much later the first tries land after all."""
        entries = world.append(3)
        store = LosesPuts(world.memory, lost=(1, 3))
        pins = Pins(world.open(store))
        held = pins.pin(entries[0], ttl=self.TTL, holder="query")
        pins.release(held)
        world.collect()
        assert world.ids() == [3]
        assert pins.records() == ()
        for path, data, mode in store.flying:
            with suppress(PreconditionFailedError):
                world.memory.put(path, data, mode)
        assert [pin.granted for record in pins.records() for pin in record.pins] == [False]
        with pytest.raises(PinLostError):
            pins.pin(entries[0], ttl=self.TTL, holder="late")

    def test_many_holders_share_a_record(self, world: World) -> None:
        entries = world.append(3)
        held = [Pins(world.other()).pin(entries[0], ttl=self.TTL, holder=f"query {n}") for n in range(5)]
        [record] = Pins(world.other()).records()
        assert [pin.holder for pin in record.pins] == [f"query {n}" for n in range(5)]
        for each in held[:-1]:
            Pins(world.other()).release(each)
        world.collect()
        assert world.ids() == [1, 3]

    def test_asking_against_another_asker(self, world: World) -> None:
        entries = world.append(3)
        world.store.before("put", ".json", lambda: Pins(world.other()).pin(entries[0], ttl=self.TTL, holder="other"))
        Pins(world.open()).pin(entries[0], ttl=self.TTL, holder="query")
        [record] = Pins(world.other()).records()
        assert sorted(pin.holder for pin in record.pins) == ["other", "query"]

    def test_releasing_twice_or_after_the_end_does_nothing(self, world: World) -> None:
        entries = world.append(3)
        pins = Pins(world.open())
        pin = pins.pin(entries[0], ttl=timedelta(seconds=1), holder="query")
        pins.release(pin)
        pins.release(pin)
        world.collect()
        pins.release(pin)
        assert pins.records() == ()

    def test_bad_ttl(self, world: World) -> None:
        [entry] = world.append(1)
        for ttl in (timedelta(0), timedelta(seconds=-1), timedelta.max):
            with pytest.raises(UsageError):
                Pins(world.open()).pin(entry, ttl=ttl, holder="query")
