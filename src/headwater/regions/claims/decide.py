"""Who may rely on a file, and who may delete it: pure.

A run that is opened:

    its row            fence against the region's highest    then
    of another region  -                                     foreign: an id belongs to one region
    any                lower                                 fenced: a later attempt has begun
    none               not lower                             open
    alive              not lower                             adopt: the claims were held without a break
    lapsed             not lower                             restart: its claims may have been overrun, and are dropped

A file that an executor wants to delete:

    living claim    being deleted by    its lease    then
    yes             nobody              -            claimed
    no              nobody              -            entered
    -               us                  -            ours: what was begun may be ended
    -               another             runs         busy
    -               another             is over      taken over: the file may be gone already, so it is deleted again

A file that is being deleted cannot have a living claim: a claim is refused for it, whatever became of its executor, for
the request to delete it may still be on its way.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from headwater.kernel.ids import Ulid
from headwater.regions.claims.model import ClaimRun, DeleteVerdict, Deletion, OpenVerdict, RunVerdict


def open_verdict(found: ClaimRun | None, region: str, fence: int, highest_fence: int, now: datetime) -> OpenVerdict:
    """The row of the first table."""
    if found is not None and found.region != region:
        return OpenVerdict.FOREIGN
    if fence < highest_fence:
        return OpenVerdict.FENCED
    if found is None:
        return OpenVerdict.OPEN
    return OpenVerdict.ADOPT if is_alive(found, now) else OpenVerdict.RESTART


def run_verdict(
    wanted: ClaimRun, found: ClaimRun | None, highest_fence: int, now: datetime, needed: timedelta = timedelta(0)
) -> RunVerdict:
    """Whether the attempt `wanted` may go on, and for as long as is needed."""
    if found is None:
        return RunVerdict.GONE
    if wanted.fence < max(found.fence, highest_fence):
        return RunVerdict.FENCED
    if not is_alive(found, now):
        return RunVerdict.LAPSED
    return RunVerdict.HOLDS if now + needed <= found.expires_at else RunVerdict.TOO_SHORT


def delete_verdict(*, is_claimed: bool, found: Deletion | None, executor: Ulid, now: datetime) -> DeleteVerdict:
    """The row of the second table."""
    if found is None:
        return DeleteVerdict.CLAIMED if is_claimed else DeleteVerdict.ENTERED
    if found.executor == executor:
        return DeleteVerdict.OURS
    return DeleteVerdict.BUSY if now < found.lease_until else DeleteVerdict.TAKEN_OVER


def is_alive(run: ClaimRun, now: datetime) -> bool:
    """Whether the claims of the run hold at this moment."""
    return now < run.expires_at
