"""Errors of optimizing."""

from __future__ import annotations

from datetime import datetime

from headwater.catalog.model import TableKey
from headwater.kernel.errors import ConflictError, CorruptError
from headwater.kernel.ids import Ulid


class TableHeldError(ConflictError):
    """Another job is at work on the table, or was, and its lease has not passed."""

    def __init__(self, key: TableKey, branch: str, job: Ulid, actor: str, until: datetime) -> None:
        super().__init__(
            f"{key} on {branch} is being rewritten by job {job} of {actor}",
            hint=f"wait for its end; if its process died, try again after {until.isoformat(timespec='seconds')}",
            table=str(key),
            branch=branch,
            job=job,
        )


class RunLostError(ConflictError):
    """The run took longer than its lease, and was taken for dead."""

    def __init__(self, job: Ulid) -> None:
        super().__init__(
            f"job {job} was taken for dead, because its lease had passed",
            hint="nothing was changed; run it again",
            job=job,
        )


class CompactionsCorruptError(CorruptError):
    """The state of the jobs cannot be read, or is of a newer version."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"{path} {what}",
            hint="only optimize and indices need it: upgrade headwater, or let a person look at the file",
            path=path,
        )
