"""Connections that send the head of a request too slowly, or never, are closed.

uvicorn waits for the head of a request for as long as it takes: a thousand silent connections would be all that a
process may have, at no cost to whoever opened them. Bodies are measured elsewhere (limits.py).
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


def patient(head_seconds: float) -> type[H11Protocol]:
    """The protocol of a connection, which waits so long for each head, from the moment it may come or begins to."""

    class Patient(H11Protocol):
        """A connection."""

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self._giving_up: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """The first head is waited for from now on."""
            super().connection_made(transport)
            self._giving_up = self.loop.call_later(head_seconds, self._give_up)

        def data_received(self, data: bytes) -> None:
            """Between requests, a head has begun; every further piece of it finds the clock running."""
            super().data_received(data)
            is_answering = self.cycle is not None and not self.cycle.response_complete
            if is_answering:
                self._wait_no_more()
            elif self._giving_up is None:
                self._giving_up = self.loop.call_later(head_seconds, self._give_up)

        def connection_lost(self, exc: Exception | None) -> None:
            """Nothing is waited for any more."""
            self._wait_no_more()
            super().connection_lost(exc)

        def _give_up(self) -> None:
            self._giving_up = None
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

        def _wait_no_more(self) -> None:
            if self._giving_up is not None:
                self._giving_up.cancel()
                self._giving_up = None

    return Patient
