"""Threads that stay, for small pieces of work side by side: starting threads each time would cost more than the work.

Whoever asks works along, and does by itself what no thread has begun yet. So nobody waits in a queue for others, work
may ask for more work, and a forked child, which has none of its parent's threads, gets its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Workers:
    """At most `most` threads besides those who ask; they end with it. Safe to share among threads."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._by_process: dict[int, ThreadPoolExecutor] = {}

    def each(self, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """What the action makes of each, in order. After an error nothing more is begun, and nothing is under way."""
        if len(items) < 2 or self._most < 1:
            return [action(item) for item in items]
        first, *others = items
        futures: list[Future[R]] = [Future() for _ in others]
        self._offer(action, others, futures)
        try:
            done = [action(first)]
            for item, future in zip(others, futures, strict=True):
                done.append(action(item) if future.cancel() else future.result())
        except BaseException:
            _stop(futures)
            raise
        return done

    def _offer(self, action: Callable[[T], R], items: Sequence[T], futures: Sequence[Future[R]]) -> None:
        """Let threads do what they come to; they leave what the asker has taken back, however late they are."""
        pool = self._threads()
        try:
            for item, future in zip(items, futures, strict=True):
                pool.submit(_do, action, item, future)
        except RuntimeError:
            return  # the program is about to end, or there are too many threads: the asker does it all

    def _threads(self) -> ThreadPoolExecutor:
        process = os.getpid()
        mine = self._by_process.get(process)
        # No lock, which a fork could catch in another thread's hands: one that is made in vain has no threads yet.
        return mine or self._by_process.setdefault(
            process, ThreadPoolExecutor(self._most, thread_name_prefix=self._name)
        )


def _do(action: Callable[[T], R], item: T, future: Future[R]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(action(item))
    except BaseException as error:
        future.set_exception(error)


def _stop(futures: Sequence[Future[R]]) -> None:
    wait([future for future in futures if not future.cancel()])
