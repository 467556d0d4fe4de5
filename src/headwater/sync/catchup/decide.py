"""Which commit of `main` is next, and whether a replica is too far behind. Pure."""

from __future__ import annotations

from datetime import datetime

from headwater.sync.catchup.model import Limits, Pending, Pressure, Target


def next_target(
    pending: Pending | None, now: datetime, limits: Limits, *, is_forward_asked: bool = False
) -> Target | None:
    """The commit to go to: the oldest that is pending, or the newest when that is too much, or readers ask for it."""
    if pending is None:
        return None
    if pending.oldest == pending.newest:
        return Target(pending.newest)
    is_far = pending.count > limits.forward_commits or now - pending.oldest.created_at > limits.forward_after
    return Target(pending.newest, is_forward=True) if is_far or is_forward_asked else Target(pending.oldest)


def pressure(pending: Pending | None, backlog_bytes: int, now: datetime, limits: Limits) -> Pressure:
    """Whether writers should be told that this region cannot keep up."""
    reasons = []
    if pending is not None and now - pending.oldest.created_at > limits.alarm_after:
        lag = (now - pending.oldest.created_at).total_seconds()
        most = limits.alarm_after.total_seconds()
        reasons.append(f"the oldest commit that is not promoted is {lag:.0f} s old, more than {most:.0f} s")
    if backlog_bytes > limits.alarm_backlog_bytes:
        reasons.append(f"{backlog_bytes} bytes wait to be copied, more than {limits.alarm_backlog_bytes}")
    return Pressure(tuple(reasons))
