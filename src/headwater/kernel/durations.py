"""Durations as people write them: `250ms`, `30s`, `15m`, `6h`, `7d`."""

from __future__ import annotations

import re
from datetime import timedelta

from headwater.kernel.errors import UsageError

_SHAPE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str) -> timedelta:
    """`"15m"` as a timedelta; anything without a unit is refused."""
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is not a duration", hint="a number and a unit: 250ms, 30s, 15m, 6h, 7d", duration=text
        )
    try:
        return timedelta(seconds=float(match[1]) * _SECONDS[match[2]])
    except OverflowError:
        raise UsageError(f"the duration {text!r} is too long", duration=text) from None


def format_duration(delta: timedelta) -> str:
    """The shortest spelling that says it exactly enough for a person; what lies in the future is no time at all."""
    seconds = max(0.0, delta.total_seconds())
    for unit in ("d", "h", "m", "s"):
        amount = seconds / _SECONDS[unit]
        if amount >= 1:
            return f"{amount:.3g}{unit}" if amount < 100 else f"{amount:.0f}{unit}"
    return f"{seconds * 1000:.0f}ms"
