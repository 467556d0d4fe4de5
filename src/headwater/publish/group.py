"""Many writers of one process, one manifest: whoever waits while a commit is on its way goes together with the next.

Promise: each writer gets its own commit or its own error, as if it had committed alone.

There is no thread and no timer. A writer that finds nobody committing leads at once, with whoever waits by then, which
is nobody but itself when it is alone. It answers those whom it carried, hands the lead to the first that came too late,
and returns: nobody works for others for longer than one commit.

A leader holds the write queues of its own tables and needs none of anybody else's, so waiting for it cannot lock up.

    the leader                        those whom it carries
    an error of one                   that one alone hears it
    an error of all, nothing changed  all of them hear it, and each may try again
    anything else (it is killed)      an unknown outcome, each with its own operation (P3)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from headwater.catalog.errors import CommitOutcomeUnknownError
from headwater.catalog.model import Commit, CommitRequest
from headwater.catalog.port import Catalog
from headwater.kernel.errors import HeadwaterError

# How many commits one manifest carries at most: their objects are in memory until it lands.
LARGEST = 64


@dataclass(eq=False)
class _Member:
    """A writer that waits: what it wants, whether it still may, and what became of it."""

    request: CommitRequest
    check: Callable[[], None]
    called: threading.Event
    leads: bool = False
    answer: Commit | HeadwaterError | None = None

    def refused(self) -> bool:
        """Whether it may not commit any more, which is its answer then."""
        try:
            self.check()
        except HeadwaterError as error:
            self.answer = error
        return self.answer is not None


class Group:
    """The commits of one process to one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._guard = threading.Lock()
        self._waiting: list[_Member] = []
        self._is_led = False

    def commit(self, request: CommitRequest, *, check: Callable[[], None]) -> Commit:
        """Commit, or say why not; `check` is asked right before, and its error is the answer."""
        member = _Member(request, check, threading.Event())
        with self._guard:
            self._waiting.append(member)
            if not self._is_led:
                self._is_led = member.leads = True
        try:
            if not member.leads:
                member.called.wait()
            if member.leads:
                self._lead()
        except BaseException:
            self._leave(member)
            raise
        assert member.answer is not None  # whoever is called is answered, or leads
        if isinstance(member.answer, HeadwaterError):
            raise member.answer
        return member.answer

    def _lead(self) -> None:
        """Carry those who wait, then let the next one lead."""
        with self._guard:
            carried = self._waiting[:LARGEST]
            del self._waiting[:LARGEST]
        try:
            self._carry([each for each in carried if not each.refused()])
        finally:
            for each in carried:
                if each.answer is None:
                    each.answer = CommitOutcomeUnknownError(
                        each.request.branch, each.request.operation, "whoever carried it was stopped on the way"
                    )
                each.called.set()
            self._hand_over()

    def _carry(self, members: list[_Member]) -> None:
        try:
            answers = self._catalog.commit_all([each.request for each in members]) if members else ()
        except HeadwaterError as error:
            answers = (error,) * len(members)
        for each, answer in zip(members, answers, strict=True):
            each.answer = answer

    def _hand_over(self) -> None:
        with self._guard:
            self._is_led = bool(self._waiting)
            if self._waiting:
                self._waiting[0].leads = True
                self._waiting[0].called.set()

    def _leave(self, member: _Member) -> None:
        """One that is stopped while it waits goes; if it was to lead, the next one does."""
        with self._guard:
            waits = member in self._waiting
            if waits:
                self._waiting.remove(member)
        if waits and member.leads:
            self._hand_over()
