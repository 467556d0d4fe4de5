"""Work side by side: in order, without waiting for others, and with nothing under way after an error."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from headwater.kernel.workers import Workers


@pytest.mark.parametrize("most", [0, 1, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_answers_are_in_order(most: int, count: int) -> None:
    assert Workers(most, "test").each(lambda number: number * 2, range(count)) == [2 * each for each in range(count)]


def test_it_is_side_by_side() -> None:
    """Three that wait for each other: one after the other they would never end."""
    together = threading.Barrier(3, timeout=30)
    assert Workers(2, "test").each(lambda _: together.wait(), range(3))


def test_threads_stay() -> None:
    workers, seen = Workers(1, "test"), set()
    for _ in range(20):
        both = threading.Barrier(2, timeout=30)

        def work(_: int, both: threading.Barrier = both) -> None:
            seen.add(threading.get_ident())
            both.wait()

        workers.each(work, range(2))
    assert len(seen) == 2


def test_work_may_ask_for_more_work() -> None:
    workers = Workers(2, "test")
    assert workers.each(lambda a: sum(workers.each(lambda b: a * b, range(5))), range(5)) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("bad", [0, 1, 5])
def test_after_an_error_nothing_is_under_way(bad: int) -> None:
    begun, ended, is_wrong = [], [], threading.Event()

    def work(number: int) -> None:
        if number == bad:
            is_wrong.set()
            raise ValueError(number)
        begun.append(number)
        is_wrong.wait(30)
        threading.Event().wait(0.02)  # an error that is not waited for would be told before this ends
        ended.append(number)

    with pytest.raises(ValueError, match=str(bad)):
        Workers(6, "test").each(work, [bad, *(each for each in range(6) if each != bad)])
    assert sorted(begun) == sorted(ended)


def test_a_forked_child_has_threads_of_its_own() -> None:
    workers = Workers(1, "test")
    workers.each(abs, range(4))
    child = os.fork()
    if not child:
        together = threading.Barrier(2, timeout=30)
        os._exit(0 if workers.each(lambda _: together.wait() >= 0, range(2)) == [True, True] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


ENDING = """
import threading
from headwater.kernel.workers import Workers

def late() -> None:
    threading.main_thread().join()
    print(Workers(2, "test").each(abs, [-1, -2, -3]))

threading.Thread(target=late).start()
"""


def test_work_goes_on_while_the_program_ends() -> None:
    """The main thread is done, and no thread can be started any more: whoever still publishes must get through."""
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[1, 2, 3]\n", "")


def test_where_no_thread_can_be_started_nothing_is_done_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool keeps what it was given although it said no: a thread that comes later leaves what was done."""
    workers, most = Workers(2, "test"), [0]
    done: list[int] = []
    start = threading.Thread.start

    def none_left(self: threading.Thread) -> None:
        if most[0] == 0:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", none_left)
    workers.each(done.append, range(4))
    assert done == [0, 1, 2, 3]
    most[0] = 1
    together = threading.Barrier(2, timeout=30)
    workers.each(lambda _: together.wait(), range(2))
    assert done == [0, 1, 2, 3]
