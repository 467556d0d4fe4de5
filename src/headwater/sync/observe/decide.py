"""How long a commit took from `main` to a region's readers, by the moments that were noted on its way. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

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


def _seconds(start: datetime, end: datetime) -> float:
    return max(0.0, (end - start).total_seconds())
