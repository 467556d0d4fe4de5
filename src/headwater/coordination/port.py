"""The port that everything above coordination sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from headwater.coordination.model import Batch, Compare, Entry, Lease, Listing, Operation
from headwater.kernel.ids import Ulid

OUTCOMES_KEPT_SECONDS = 24 * 3600
"""How long a recorded operation can be asked for, at least."""


class Coordination(Protocol):
    """Leased keys, compare-and-swap and watch. Threads share one; every backend behaves the same.

    - A revision counts changes over all keys of one coordinator, and only grows. Each transaction that changes
      something has one of its own, and so has the end of each lease.
    - A key on a lease vanishes soon after the lease expires, at a revision: from then on nobody is shown it, no
      compare holds against it, and watchers are told that it was deleted. No transaction finds it after the lease
      expired on the database; etcd ends leases a little late. One clock judges that: PostgreSQL's, etcd's, or on SQLite
      the `Clock` that the database was opened with.
    - `UnavailableError`: nothing happened, or nothing that would matter. `OutcomeUnknownError`: only from
      `transact`, when its answer was lost. `ConflictError`: nothing happened. `UsageError` names the bad key.
    """

    def get(self, key: str) -> Entry | None:
        """The key as it stands, or `None`."""
        ...

    def list(self, prefix: str) -> Listing:
        """All keys that start with `prefix` ("" is all keys), with the revision from which to watch on."""
        ...

    def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, operation: Ulid | None = None
    ) -> int:
        """If all compares hold, do all operations at once and return the revision at which they are visible.

        Otherwise nothing changes and a `ConflictError` names the first key that differs, with `expected` and
        `actual`. A put on a lease that is gone is a `LeaseExpiredError`. No key may be written twice.

        With `operation` the transaction is recorded under that id. To repeat it with the same id does not do it
        again but returns its revision, and `outcome` tells what became of it when the answer was lost.
        """
        ...

    def outcome(self, operation: Ulid) -> int | None:
        """Settle a recorded transaction: its revision, or `None` when it did not land and now never will.

        After `None` a delayed arrival of that transaction is refused, so that the caller may act on the answer;
        to try again it takes a new id. Ask within `OUTCOMES_KEPT_SECONDS`.
        """
        ...

    def grant(self, ttl_seconds: float) -> Lease:
        """A new lease that lives at least so long without `keep_alive`."""
        ...

    def keep_alive(self, lease: int) -> Lease:
        """Start the lease's time anew. A lease that has expired stays so: `LeaseExpiredError`."""
        ...

    def revoke(self, lease: int) -> None:
        """End the lease and delete what hangs on it. To revoke what is gone does nothing."""
        ...

    def watch(self, prefix: str, after_revision: int, timeout_seconds: float) -> Iterator[Batch]:
        """What happens under `prefix` after a revision, one batch for each revision, in order, without gaps.

        Ends when nothing has come for `timeout_seconds`; resume after the revision of the last batch. A history
        that is already forgotten is a `CompactedError`: list again. A delete of an unknown key may be shown.
        """
        ...

    def close(self) -> None:
        """Let go of connections. Leases live on until they expire."""
        ...
