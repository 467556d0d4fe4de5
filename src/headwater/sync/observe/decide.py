"""How long a commit took from `main` to a region's readers, by the moments that were noted on its way. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from headwater.sync.model import WRITE_ENDED_AT, Times, moment


@dataclass(frozen=True)
class Lags:
    """All from the moment when the commit was made on `main`, but for the writer's, which begins with its last file."""

    regional_commit_seconds: float
    end_to_end_seconds: float
    read_ready_seconds: float
    writer_to_read_ready_seconds: float


def lags(times: Times, visible_at: datetime, origin_properties: Mapping[str, str]) -> Lags:
    """The lags of a commit that became visible to the region's readers.

    A writer that does not say when its files were stored is taken to have stored them when it committed. Clocks of
    several machines are compared, so that a lag may come out a little below nothing: it is told as nothing.
    """
    began = times.origin_created_at
    written = moment(origin_properties.get(WRITE_ENDED_AT)) or began
    ready = max(times.copy_ended_at, times.localize_ended_at, times.replica_created_at)
    return Lags(
        _seconds(began, times.replica_created_at),
        _seconds(began, ready),
        _seconds(began, visible_at),
        _seconds(written, visible_at),
    )


def is_beat_due(last: datetime, now: datetime, every: timedelta) -> bool:
    """Whether another heartbeat is to be made."""
    return now - last >= every


def lacking_seconds(shown: str, beats: Iterable[tuple[str, datetime]], now: datetime) -> float:
    """How long a region that shows this heartbeat has lacked the oldest that came after it; `beats` newest first."""
    oldest: datetime | None = None
    for beat, made_at in beats:
        if beat == shown:
            break
        oldest = made_at
    return 0.0 if oldest is None else _seconds(oldest, now)


def commits_within(times: Iterable[datetime], now: datetime, span: timedelta) -> int:
    """How many of the commits, newest first, are no older than the span."""
    count = 0
    for at in times:
        if now - at > span:
            break
        count += 1
    return count


def _seconds(start: datetime, end: datetime) -> float:
    return max(0.0, (end - start).total_seconds())
