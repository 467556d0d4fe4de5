"""Which strings may name an object. The rules are the same on every backend."""

from __future__ import annotations

import re

from headwater.storage.errors import InvalidPathError

# Names that the file backend uses for its own unfinished work; nobody can address or list them (hazard S6).
RESERVED_PREFIX = ".hw-"
LONGEST_BYTES = 1024

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def check_path(path: str) -> str:
    """`path` itself when it may name an object: relative, with plain segments separated by single slashes."""
    reason = _objection(path)
    if reason:
        raise InvalidPathError(f"{path!r} cannot name an object: {reason}", path=path)
    return path


def check_prefix(prefix: str) -> str:
    """`prefix` without a trailing slash; the empty prefix means everything."""
    trimmed = prefix.removesuffix("/")
    return check_path(trimmed) if trimmed else ""


def join(prefix: str, path: str) -> str:
    """`path` under `prefix`, which may be empty."""
    return f"{prefix}/{path}" if prefix else path


def _objection(path: str) -> str | None:
    if not path:
        return "it is empty"
    if len(path.encode("utf-8", "surrogatepass")) > LONGEST_BYTES:
        return f"it is longer than {LONGEST_BYTES} bytes"
    if _CONTROL.search(path):
        return "it has control characters"
    if _SURROGATE.search(path):
        return "it is not valid Unicode"
    for segment in path.split("/"):
        if segment in ("", ".", ".."):
            return f"it has the segment {segment!r}"
        if segment.startswith(RESERVED_PREFIX):
            return f"segments that start with {RESERVED_PREFIX!r} are reserved"
    return None
