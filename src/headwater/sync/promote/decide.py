"""Whether a replica may move, and by which changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from headwater.catalog.model import Content, Delete, NamespaceContent, Put, TableKey
from headwater.sync.model import Origin
from headwater.sync.promote.model import Gate, Next, Promotion, Standing


def standing(
    shown: Origin | None,
    target: Origin,
    *,
    is_shown_on_main: bool,
    is_target_before_shown: bool,
    is_made_alike: bool = True,
) -> Standing:
    """Where the commit that the replica shows stands to the target.

    One that shows the target by other rules, or with another history, or not all of it, is not there yet.
    """
    if shown is None:
        return Standing.NOWHERE
    if not is_shown_on_main:
        return Standing.OFF_MAIN
    if shown.hash == target.hash:
        return Standing.AT if is_made_alike else Standing.BEHIND
    return Standing.PAST if is_target_before_shown else Standing.BEHIND


def before_commit(
    where: Standing, *, is_target_on_main: bool, gate: Gate, waited: timedelta, patience: timedelta
) -> Next:
    """What to do when everything is copied, checked and localised.

    A replica never goes back along `main` (R2): who finds it at or past the target stops. Only when `main` itself was
    moved may it, and then towards a target that is part of `main` again.
    """
    if where in (Standing.AT, Standing.PAST):
        return Next.STOP
    if not is_target_on_main:
        return Next.PLAN_AGAIN
    if gate.is_open:
        return Next.COMMIT
    return Next.WAIT if waited < patience else Next.GIVE_UP


def after_conflict(where: Standing) -> Next:
    """What to do when the replica's head was not what the promotion rests on (R2)."""
    return Next.STOP if where in (Standing.AT, Standing.PAST) else Next.PLAN_AGAIN


def promotion(localised: Mapping[TableKey, Content], shown: Mapping[TableKey, Content]) -> Promotion:
    """The changes from what the replica shows to the localised state of the target.

    A name keeps the identity that it has in the replica, also when `main` dropped the table and made another of that
    name: it changes from one to the other in one commit. Only what turns from a table into a view, or the like, is
    removed first.
    """
    removals = {key: held for key, held in shown.items() if key in localised and type(localised[key]) is not type(held)}
    # A namespace goes with what was in it.
    rooms = [key.elements for key, held in removals.items() if isinstance(held, NamespaceContent)]
    removals |= {key: held for key, held in shown.items() if any(key.is_in(room) for room in rooms)}
    changes: dict[TableKey, Put | Delete] = {}
    expected: dict[TableKey, Content | None] = {}
    for key, wanted in localised.items():
        held = None if key in removals else shown.get(key)
        if held is not None:
            wanted = replace(wanted, content_id=held.content_id)
        if wanted != held:
            changes[key], expected[key] = Put(wanted), held
    for key, held in shown.items():
        if key not in localised and key not in removals:
            changes[key], expected[key] = Delete(), held
    return Promotion(changes, expected, removals)
