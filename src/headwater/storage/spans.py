"""Small rules that all backends share, so that they cannot differ in them."""

from __future__ import annotations

from headwater.kernel.errors import UsageError
from headwater.storage.errors import InvalidPathError
from headwater.storage.paths import check_prefix


def check_span(span: tuple[int, int], path: str) -> tuple[int, int]:
    """A range must begin at or after 0 and hold at least one byte."""
    start, end = span
    if start < 0 or end <= start:
        raise UsageError(f"bytes {start} to {end} of {path} are no range", path=path)
    return span


def past_the_end(span: tuple[int, int], path: str) -> UsageError:
    """The error for a range that begins behind the last byte."""
    return UsageError(f"{path} ends before byte {span[0]}", path=path)


def cut(data: bytes, span: tuple[int, int] | None, path: str) -> bytes:
    """The asked range of `data`."""
    if span is None:
        return data
    start, end = check_span(span, path)
    if start >= len(data):
        raise past_the_end(span, path)
    return data[start:end]


def deletable_prefix(prefix: str) -> str:
    """A prefix that may be deleted: not the whole store."""
    checked = check_prefix(prefix)
    if not checked:
        raise InvalidPathError("deleting a whole store is refused; name a prefix", path=prefix)
    return checked
