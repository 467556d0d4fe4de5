"""Holds the lease of the timestamp service for a node: takes it when it is free, and renews it.

Promise: `service` gives the service only while this node took the lease and has not learnt that it lost it; the service
itself refuses when its lease has passed. Nothing runs before `start`. What a crash leaves is a lease that passes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from headwater.ingest.timestamps.model import FencedError, TakenError
from headwater.ingest.timestamps.protocol import TimestampService
from headwater.kernel.errors import HeadwaterError, RefusedError, UnavailableError
from headwater.kernel.logs import Log

_log = Log("ingest")
_TURNS_OF_A_LEASE = 4


class NotTheHolderError(RefusedError):
    """Another node keeps the time; nothing was done. `holder` says where it answers."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"the time is kept by {holder}", hint=f"ask {holder}", holder=holder)


class TimeKeeper:
    """One node's wish to keep the time. `take` acquires the lease, or raises. Safe to share among threads."""

    def __init__(self, take: Callable[[], TimestampService], lease_seconds: float) -> None:
        self._take = take
        self._turn_seconds = lease_seconds / _TURNS_OF_A_LEASE
        self._service: TimestampService | None = None
        self._reason: HeadwaterError = UnavailableError(
            "the node has not asked yet who keeps the time", hint="ask again in a moment"
        )
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def service(self) -> TimestampService:
        """The service, if this node holds it; otherwise the error says who does, or why nobody is known to."""
        service = self._service
        if service is None:
            raise self._reason
        return service

    def start(self) -> None:
        """Begin to ask for the lease, in the background."""
        self._thread = threading.Thread(target=self._run, name="keeper of time", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give the lease back, and ask for it no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._lose(UnavailableError("the node is stopping", hint="ask another node"))

    def turn(self) -> None:
        """Once: renew what is held, or try to take it."""
        if self._service is not None:
            self._renew(self._service)
        if self._service is None:
            self._try_to_take()

    def _renew(self, service: TimestampService) -> None:
        try:
            service.keep_lease()
        except FencedError as error:
            _log.warning("the lease of the time is lost", error=str(error))
            self._lose(UnavailableError("this node kept the time and has lost its lease", hint="ask again in a moment"))
        except HeadwaterError as error:
            # It may be held still: the service refuses by itself once its lease has passed.
            _log.warning("the lease of the time could not be renewed", error=str(error))

    def _try_to_take(self) -> None:
        try:
            self._service = self._take()
        except TakenError as error:
            holder = error.fields["holder"]
            self._reason = error if holder is None else NotTheHolderError(str(holder))
        except HeadwaterError as error:
            self._reason = UnavailableError(f"nobody is known to keep the time: {error.message}", hint=error.hint)

    def _lose(self, reason: HeadwaterError) -> None:
        service, self._service, self._reason = self._service, None, reason
        if service is not None:
            with suppress(HeadwaterError):
                service.close()

    def _run(self) -> None:
        while True:
            try:
                self.turn()
            except Exception as error:
                # To end here would let nobody else see why; the lease passes by itself.
                _log.error("the time could not be kept", error=repr(error))
            if self._stop.wait(self._turn_seconds):
                return
