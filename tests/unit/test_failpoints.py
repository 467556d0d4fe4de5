"""Failpoints: their names, their syntax, their actions."""

from __future__ import annotations

import ast
import os
import signal
import threading
from pathlib import Path

import pytest

import headwater
from headwater.kernel import failpoints
from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import UsageError
from headwater.kernel.failpoints import Action, Armed, Failpoint, FailpointError, arm, arm_from, hit, parse

POINT = Failpoint.WRITE_AFTER_CREATE


def test_the_syntax() -> None:
    assert parse("") == ()
    assert parse(f"{POINT}=kill") == (Armed(POINT, Action.KILL),)
    assert parse(f" {POINT}=delay:250@3 , {Failpoint.WRITE_BEFORE_CREATE}=error:no such luck ") == (
        Armed(POINT, Action.DELAY, "250", 3),
        Armed(Failpoint.WRITE_BEFORE_CREATE, Action.ERROR, "no such luck"),
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sequence.write.after-creat=kill", "did you mean 'sequence.write.after-create'"),
        ("nonsense=kill", "there is no failpoint 'nonsense'"),
        (f"{POINT}", "has no action"),
        (f"{POINT}=explode", "unknown action 'explode'"),
        (f"{POINT}=kill@0", "not a positive number"),
        (f"{POINT}=kill@x", "not a positive number"),
        (f"{POINT}=delay", "delay needs milliseconds"),
    ],
)
def test_mistakes_are_refused(spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        arm_from(spec)
    hit(POINT)


def test_unarmed_does_nothing() -> None:
    for point in Failpoint:
        hit(point)


def test_error_on_the_nth_hit_only() -> None:
    with arm(POINT, Action.ERROR, arg="boom", only_hit=2):
        hit(POINT)
        with pytest.raises(FailpointError, match="boom"):
            hit(POINT)
        hit(POINT)
    hit(POINT)


def test_delay() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    with arm(POINT, Action.DELAY, arg="20"):
        hit(POINT)
    assert clock.monotonic() - before >= 0.02


def test_signals_go_to_the_own_process_and_a_stop_to_the_thread_that_came_by(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(signal, "pthread_kill", lambda thread, number: sent.append((thread, number)))
    for action in (Action.KILL, Action.STOP):
        with arm(POINT, action):
            hit(POINT)
    assert sent == [(os.getpid(), signal.SIGKILL), (threading.get_ident(), signal.SIGSTOP)]


def test_arming_nests() -> None:
    with arm(POINT, Action.ERROR, arg="outer"):
        with arm(POINT, Action.ERROR, arg="inner"), pytest.raises(FailpointError, match="inner"):
            hit(POINT)
        with pytest.raises(FailpointError, match="outer"):
            hit(POINT)
    assert failpoints._armed == {}


def test_every_name_stands_somewhere_in_the_product() -> None:
    used = set()
    for file in Path(headwater.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "hit":
                [argument] = node.args
                assert isinstance(argument, ast.Attribute)
                used.add(argument.attr)
    assert used == {point.name for point in Failpoint}
