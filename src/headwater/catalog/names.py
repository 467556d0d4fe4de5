"""Which strings may name a ref, or a part of a key. The rules are those of Nessie, so that names fit every backend."""

from __future__ import annotations

import re
from functools import lru_cache

from headwater.kernel.errors import UsageError

DEFAULT_BRANCH = "main"
DEFAULT_NAMESPACE = "default"
MOST_ELEMENTS = 20
LONGEST_KEY_BYTES = 500
LONGEST_REF_BYTES = 255

_REF = re.compile(r"[A-Za-z](?:(?:(?!\.\.)[A-Za-z0-9./_-])*[A-Za-z0-9_-])?")
_HASH = re.compile(r"[0-9a-fA-F]{8,64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_RESERVED = frozenset({"HEAD", "DETACHED", "BARE"})


def check_ref_name(name: str) -> str:
    """`name` itself when it may name a branch or a tag."""
    reason = _objection_to_ref(name)
    if reason:
        raise UsageError(
            f"{name!r} cannot name a branch or tag: {reason}",
            hint="a letter first, then letters, digits and . / _ -",
            ref=name,
        )
    return name


def looks_like_hash(text: str) -> bool:
    """Whether `text` could be a commit's hash, or the beginning of one; no ref has such a name."""
    return _HASH.fullmatch(text) is not None


def check_elements(elements: tuple[str, ...]) -> None:
    """Refuse what cannot be the elements of a key."""
    reason = _objection_to_size(elements) or _objection_to_elements(elements)
    if reason:
        shown = ".".join(elements)
        raise UsageError(
            f"{shown!r} cannot name a table or namespace: {reason}",
            hint="like db.table; a dot separates the parts, so no part holds one",
            table=shown,
        )


def check_text(text: str, what: str) -> None:
    """Refuse text that not every backend could store: no UTF-8, or the character U+0000."""
    if not isinstance(text, str) or not _is_unicode(text) or "\0" in text:
        raise UsageError(f"{what} {text!r} is not valid text", hint="UTF-8 without U+0000")


def has_control_characters(text: str) -> bool:
    """Whether something in `text` would move a terminal's cursor instead of showing."""
    return _CONTROL.search(text) is not None


def _objection_to_ref(name: str) -> str | None:
    if has_control_characters(name):
        return "it has control characters"
    if len(name) > LONGEST_REF_BYTES:
        return f"it is longer than {LONGEST_REF_BYTES} characters"
    if not _REF.fullmatch(name):
        return "it does not begin with a letter, holds '..' or another character, or ends with '.' or '/'"
    if name.upper() in _RESERVED:
        return "it is reserved"
    return "it looks like a commit's hash" if looks_like_hash(name) else None


def _objection_to_size(elements: tuple[str, ...]) -> str | None:
    """Judged first and not remembered: what is remembered must not be of any size that a caller likes."""
    if len(elements) > MOST_ELEMENTS:
        return f"it has more than {MOST_ELEMENTS} parts"
    if sum(map(len, elements)) > LONGEST_KEY_BYTES:
        return f"it is longer than {LONGEST_KEY_BYTES} bytes"
    return None


@lru_cache(maxsize=4096)
def _objection_to_elements(elements: tuple[str, ...]) -> str | None:
    if not elements or not all(elements):
        return "a part of it is empty"
    if any(has_control_characters(element) for element in elements):
        return "it has control characters"
    if not all(_is_unicode(element) for element in elements):
        return "it is not valid Unicode"
    if any("." in element for element in elements):
        return "a part of it holds a dot"
    if sum(len(element.encode()) for element in elements) > LONGEST_KEY_BYTES:
        return f"it is longer than {LONGEST_KEY_BYTES} bytes"
    return None


def _is_unicode(text: str) -> bool:
    return _SURROGATE.search(text) is None
