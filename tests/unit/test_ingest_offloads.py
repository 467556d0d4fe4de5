"""Readers hold folding, for a lease each."""

from __future__ import annotations

import pytest

from headwater.ingest.visibility.model import BelowBaseError
from headwater.ingest.visibility.offloads import Offloads
from headwater.kernel.clock import ManualClock


def test_the_least_of_all_holds() -> None:
    offloads = Offloads(ManualClock(), 60)
    ids = [offloads.register(each) for each in (7, 4, 4)]
    assert offloads.fold(9) == 4
    offloads.unregister(ids[1])
    assert offloads.fold(9) == 4
    offloads.unregister(ids[2])
    assert offloads.fold(9) == 7
    offloads.unregister(ids[0])
    assert offloads.fold(9) == 9


def test_what_is_folded_cannot_be_held() -> None:
    offloads = Offloads(ManualClock(), 60)
    offloads.fold(5)
    with pytest.raises(BelowBaseError):
        offloads.register(4)
    offloads.register(5)
    assert offloads.fold(9) == 5


def test_who_is_silent_for_a_lease_holds_nothing() -> None:
    clock = ManualClock()
    offloads = Offloads(clock, 60)
    offloads.register(3)
    clock.sleep(40)
    offloads.register(5)
    clock.sleep(19)
    assert offloads.fold(9) == 3
    clock.sleep(1)
    assert offloads.fold(9) == 5


def test_who_comes_back_late_takes_nothing_from_another() -> None:
    clock = ManualClock()
    offloads = Offloads(clock, 60)
    late = offloads.register(3)
    clock.sleep(61)
    offloads.register(3)
    assert offloads.fold(9) == 3
    offloads.unregister(late)
    assert offloads.fold(9) == 3
