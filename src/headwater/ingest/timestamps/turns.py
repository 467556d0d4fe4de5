"""Callers that come at the same time share one turn, and so one transaction of the database.

Whoever wins the lock does what all that wait have asked for, one step after the other, and makes it durable once; the
others find their answers when they come to the lock. A step that is refused harms no other; when the turn itself
fails, all of its steps have failed with it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Draft = TypeVar("Draft")
Answer = TypeVar("Answer")


@dataclass
class _Waiting(Generic[Draft]):
    """A step that was asked for, and what became of it."""

    step: Callable[[Draft], Any]
    is_done: bool = False
    answer: Any = None
    error: BaseException | None = None

    def run(self, draft: Draft) -> None:
        try:
            self.answer = self.step(draft)
        except Exception as error:
            self.error = error


class Turns(Generic[Draft]):
    """Turns on something. `turn` opens a draft, and makes it durable and true when its block ends well."""

    def __init__(self, turn: Callable[[], AbstractContextManager[Draft]]) -> None:
        self._turn = turn
        self._queue: deque[_Waiting[Draft]] = deque()
        self._lock = threading.Lock()

    def take(self, step: Callable[[Draft], Answer]) -> Answer:
        """Do `step` in a turn, and answer once the turn is over. A step that raises must leave the draft as it was."""
        waiting = _Waiting(step)
        self._queue.append(waiting)
        with self._lock:
            if not waiting.is_done:
                self._take_all()
        if waiting.error is not None:
            raise waiting.error
        answer: Answer = waiting.answer
        return answer

    def _take_all(self) -> None:
        together = [self._queue.popleft() for _ in range(len(self._queue))]
        try:
            with self._turn() as draft:
                for each in together:
                    each.run(draft)
        except BaseException as error:
            for each in together:
                each.error = each.error or error
        finally:
            for each in together:
                each.is_done = True
