"""Time travel: from a hash, a name or a moment to a commit.

    8 to 64 hex digits       a whole hash, or the beginning of one in the branch's log; no ref has such a name
    a letter first           a branch or a tag
    2026-11-15T09:30:00Z     the newest commit of the branch at or before that moment

A moment without an offset is refused: it would mean another one to each reader.
"""

from __future__ import annotations

import re
from datetime import datetime
from itertools import islice

from headwater.catalog.errors import CommitNotFoundError
from headwater.catalog.names import check_ref_name, looks_like_hash
from headwater.catalog.port import Catalog
from headwater.kernel.errors import UsageError

WHOLE_HASH_DIGITS = 64

_DATE_FIRST = re.compile(r"\d{4}-\d{2}-\d{2}")


def resolve(catalog: Catalog, at: str | datetime | None, branch: str) -> str:
    """The hash of the commit that `at` means; None is the branch's head."""
    if at is None:
        return catalog.ref(branch).hash
    if isinstance(at, datetime):
        return _at_moment(catalog, at, branch)
    if _DATE_FIRST.match(at):
        return _at_moment(catalog, _parse_moment(at), branch)
    if looks_like_hash(at):
        return _at_hash(catalog, at.lower(), branch)
    return catalog.ref(check_ref_name(at)).hash


def _at_hash(catalog: Catalog, text: str, branch: str) -> str:
    if len(text) == WHOLE_HASH_DIGITS:
        return catalog.commit_at(text).hash
    matching = (each.hash for each in catalog.log(catalog.ref(branch).hash) if each.hash.startswith(text))
    found = list(islice(matching, 2))
    if not found:
        raise CommitNotFoundError(text, f"no commit in the log of {branch} begins like that")
    if len(found) > 1:
        raise UsageError(
            f"{text!r} could be {found[0]} or {found[1]}, both in the log of {branch}",
            hint="write more of the hash",
            hash=text,
        )
    return found[0]


def _at_moment(catalog: Catalog, moment: datetime, branch: str) -> str:
    if moment.tzinfo is None:
        raise UsageError(f"{moment.isoformat()} has no offset from UTC", hint=f"write {moment.isoformat()}Z for UTC")
    oldest = None
    for commit in catalog.log(catalog.ref(branch).hash):
        if commit.committed_at <= moment:
            return commit.hash
        oldest = commit
    reaches = f"the log reaches back to {oldest.committed_at.isoformat()}" if oldest else "its log is empty"
    raise CommitNotFoundError(moment.isoformat(), f"{branch} has none at or before that moment; {reaches}")


def _parse_moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is not a moment", hint="ISO 8601 with an offset, like 2026-11-15T09:30:00Z", at=text
        ) from None
