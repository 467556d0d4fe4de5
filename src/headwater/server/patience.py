"""Connections that stand still are closed: heads of requests that do not come, and answers that nobody reads.

uvicorn waits for both for as long as it takes: a thousand silent connections would be all that a process may have, and
a few that read nothing would keep the places of all queries, at no cost to whoever opened them. Bodies of requests are
measured elsewhere (limits.py).
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol


class Patient(H11Protocol):
    """A connection, which waits for each head, and for a reader to take something more, but not for ever."""

    still_seconds: ClassVar[float]

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._giving_up: asyncio.TimerHandle | None = None
        self._breaking_off: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first head is waited for from now on."""
        super().connection_made(transport)
        self._giving_up = self.loop.call_later(self.still_seconds, self._give_up)

    def data_received(self, data: bytes) -> None:
        """Between requests, a head has begun; every further piece of it finds the clock running."""
        super().data_received(data)
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering:
            self._wait_no_more()
        elif self._giving_up is None:
            self._giving_up = self.loop.call_later(self.still_seconds, self._give_up)

    def pause_writing(self) -> None:
        """As much of the answer waits to be read as may: from now on somebody has to read."""
        super().pause_writing()
        self._look_again(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """It was read."""
        self._look_no_more()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._wait_no_more()
        self._look_no_more()
        super().connection_lost(exc)

    def _look_again(self, left_bytes: int) -> None:
        self._look_no_more()
        self._breaking_off = self.loop.call_later(self.still_seconds, self._look, left_bytes)

    def _look(self, before_bytes: int) -> None:
        left_bytes = self.transport.get_write_buffer_size()
        if left_bytes >= before_bytes:
            self.transport.abort()  # to close it in good order would wait for the reader
        else:
            self._look_again(left_bytes)

    def _look_no_more(self) -> None:
        if self._breaking_off is not None:
            self._breaking_off.cancel()
            self._breaking_off = None

    def _give_up(self) -> None:
        self._giving_up = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def _wait_no_more(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None


def patient(still_seconds: float) -> type[Patient]:
    """The protocol of connections that may stand still for so long."""
    return type("Patient", (Patient,), {"still_seconds": still_seconds})
