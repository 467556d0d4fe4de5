"""Holding a key: one holder at a time, and a fencing token that outlives every pause.

A process can be stopped for longer than its lease at any instruction, so to know that one held the key is worth
nothing at the moment of the write. Only the coordinator can know: each transaction of a holder carries
`Held.compare()`, and writes that go elsewhere carry `Held.fence`, which grows from holder to holder.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from headwater.coordination.limits import check_holder, check_key, check_ttl
from headwater.coordination.model import Absent, CreatedAt, Lease, LeaseExpiredError, Put
from headwater.coordination.port import Coordination
from headwater.kernel.errors import ConflictError, HeadwaterError, OutcomeUnknownError, UnavailableError


@dataclass(frozen=True)
class Held:
    """A key that was acquired. Whether it still is held, only the coordinator knows."""

    coordination: Coordination
    key: str
    holder: str
    lease: Lease
    fence: int
    """The revision at which the key was created: larger than that of every earlier holder."""

    def compare(self) -> CreatedAt:
        """What a transaction must carry so that it lands only while the key is held."""
        return CreatedAt(self.key, self.fence)

    def verify(self) -> None:
        """Ask whether the key is held at this moment; a `ConflictError` says that it is not."""
        self.coordination.transact([self.compare()], [])

    def keep_alive(self) -> None:
        """Extend the lease; call it several times within `lease.ttl_seconds`. Raises `LeaseExpiredError`."""
        self.coordination.keep_alive(self.lease.id)

    def release(self) -> None:
        """Give the key back at once. After a loss of the key this does nothing."""
        self.coordination.revoke(self.lease.id)


def acquire(coordination: Coordination, key: str, holder: str, ttl_seconds: float) -> Held | None:
    """Take `key` for `holder`, or return `None` when somebody has it.

    A `LeaseExpiredError` says that the lease ended before it could be used. Nothing is held after any error.
    """
    check_key(key)
    check_holder(holder)
    check_ttl(ttl_seconds)
    if coordination.get(key) is not None:
        return None
    lease = coordination.grant(ttl_seconds)
    try:
        fence = coordination.transact([Absent(key)], [Put(key, holder.encode(), lease.id)])
    except BaseException as error:
        # If the put landed, the end of its lease takes it away; if it is still on its way, it finds no lease.
        with suppress(HeadwaterError):
            coordination.revoke(lease.id)
        if isinstance(error, ConflictError) and not isinstance(error, LeaseExpiredError):
            return None
        if isinstance(error, OutcomeUnknownError):
            raise UnavailableError(f"{key} could not be acquired: {error.message}", key=key) from error
        raise
    return Held(coordination, key, holder, lease, fence)
