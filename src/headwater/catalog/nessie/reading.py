"""Reading the catalog on Nessie. Everything at a hash is immutable; only refs move.

What is ours is not shown: refs below `headwater/`, the fence of replica branches (R1). What a lake does not know (a
table with a dot in its name, a function) is not shown either; it is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import TypeGuard

from headwater.catalog.errors import CommitNotFoundError, RefNotFoundError
from headwater.catalog.model import OPERATION_PROPERTY, Commit, Content, Difference, Ref, TableKey
from headwater.catalog.names import DEFAULT_BRANCH, check_ref_name
from headwater.catalog.nessie.codec import (
    commit_of,
    content_of,
    elements_of,
    key_of,
    key_to_json,
    kind_of,
    own_value_of,
)
from headwater.catalog.nessie.decide import check_hash, commit_times, incarnation_of, is_own_ref
from headwater.catalog.nessie.model import LOOKBACK, NO_ANCESTOR, REF_RECORDS, Json
from headwater.catalog.nessie.transport import NessieApi, RejectedError, ref_path
from headwater.kernel.errors import UsageError
from headwater.kernel.ids import Ulid
from headwater.kernel.logs import Log

_PAGE = 200
_KEYS_AT_ONCE = 1000
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")

_log = Log("catalog")


class NessieReader:
    """What can be asked of a lake. Safe to share among threads."""

    def __init__(self, api: NessieApi, name: str) -> None:
        self.name = name
        self._api = api

    def refs(self) -> tuple[Ref, ...]:
        """Every branch and tag, by name."""
        found = [each for each in self._api.pages("trees", "references") if not is_own_ref(each["name"])]
        recorded = self._all_records() if any(each["name"] != DEFAULT_BRANCH for each in found) else {}
        refs = (_ref(each, recorded.get(each["name"])) for each in found)
        return tuple(sorted(refs, key=lambda ref: ref.name))

    def ref(self, name: str) -> Ref:
        """The branch or tag, or `RefNotFoundError`."""
        answer = self._raw_ref(name)
        return _ref(answer, self._recorded(name))

    def commit_at(self, at: str) -> Commit:
        """The commit of this hash."""
        found = next(self.log(at, limit=1), None)
        if found is None:
            raise CommitNotFoundError(at, "it stands before the first commit")
        return found

    def log(self, at: str, *, limit: int | None = None) -> Iterator[Commit]:
        """The commit and its ancestors along first parents, newest first."""
        if limit is not None and limit < 0:
            raise UsageError(f"a log cannot have {limit} entries", limit=limit)
        pages = self._log_pages(check_hash(at), limit)
        first = next(pages)  # an unknown hash is told now, not when somebody looks
        return chain(first, chain.from_iterable(pages))

    def contents(self, at: str, *, namespace: tuple[str, ...] | None = None) -> Iterator[tuple[TableKey, Content]]:
        """Everything at a commit, or in one namespace of it, in the order of keys."""
        params = {"content": "true"} | ({"prefix-key": ".".join(namespace)} if _is_plain(namespace) else {})
        with _at(at):
            entries = list(self._api.pages(f"trees/{ref_path('', check_hash(at))}/entries", "entries", params=params))
        found: dict[TableKey, Content] = {}
        for each in entries:
            if (known := _known(elements_of(each["name"]), each["content"])) is not None:
                found[known[0]] = known[1]
        return iter([(key, found[key]) for key in sorted(found) if namespace is None or key.is_in(namespace)])

    def content(self, at: str, keys: Sequence[TableKey]) -> Mapping[TableKey, Content]:
        """Those of the keys that exist."""
        check_hash(at)
        if not keys and at != NO_ANCESTOR:
            self.commit_at(at)
        found: dict[TableKey, Content] = {}
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            with _at(at):
                answer = self._raw_contents(ref_path("", at), [key.elements for key in keys[start:][:_KEYS_AT_ONCE]])
            for each in answer["contents"]:
                if (known := _known(elements_of(each["key"]), each["content"])) is not None:
                    found[known[0]] = known[1]
        return found

    def known_content(self, at: str, keys: Sequence[TableKey]) -> Mapping[TableKey, Content]:
        """The same: Nessie looks for itself."""
        return self.content(at, keys)

    def diff(self, old: str, new: str) -> tuple[Difference, ...]:
        """What differs between two commits."""
        for each in (old, new):
            check_hash(each)
        path = f"trees/{ref_path('', old)}/diff/{ref_path('', new)}"
        try:
            answers = list(self._api.pages(path, "diffs"))
        except RejectedError as error:
            if error.is_absent:
                self.content(old, ())
                raise CommitNotFoundError(new) from error
            raise
        found = []
        for each in answers:
            key = key_of(elements_of(each["key"]))
            before, after = (content_of(each[side]) if each.get(side) else None for side in ("from", "to"))
            if key is not None and before != after:
                found.append(Difference(key, before, after))
        return tuple(sorted(found, key=lambda each: each.key))

    def outcome(self, branch: str, operation: Ulid, *, above: str | None = None) -> Commit | None:
        """The commit of this operation in the branch's log, or above a commit of it.

        A branch that was set back meanwhile does not lead there: its whole log is looked through then.
        """
        # The server looks, so that a long log does not travel.
        wanted = f"commit.properties[{OPERATION_PROPERTY!r}]=={str(operation)!r}"
        asked = {"filter": f"{OPERATION_PROPERTY!r} in commit.properties && {wanted}", "max-records": "1"}
        if above is not None:
            asked["limit-hash"] = above
        try:
            answer = self._api.read(f"trees/{ref_path(check_ref_name(branch))}/history", params=asked)
        except RejectedError as error:
            raise _absent_ref(error, branch) from error
        found = [entry["commitMeta"]["hash"] for entry in answer["logEntries"]]
        return self.commit_at(found[0]) if found and found[0] != above else None

    # What Nessie says

    def _raw_ref(self, name: str) -> Json:
        try:
            answer: Json = self._api.read(f"trees/{ref_path(check_ref_name(name))}")["reference"]
        except RejectedError as error:
            raise _absent_ref(error, name) from error
        if is_own_ref(name):
            raise RefNotFoundError(name)
        return answer

    def _raw_contents(self, at: str, keys: Sequence[tuple[str, ...]]) -> Json:
        """The keys' contents at a ref or commit, and which commit that is."""
        return self._api.read(f"trees/{at}/contents", body={"requestedKeys": [key_to_json(each) for each in keys]})

    def _recorded(self, name: str) -> Ulid | None:
        """The incarnation that was recorded for a ref; the default branch has none."""
        if name == DEFAULT_BRANCH:
            return None
        try:
            answer = self._raw_contents(ref_path(REF_RECORDS), [(name,)])
        except RejectedError as error:
            if error.is_absent:
                return None  # nobody has made a ref here yet
            raise
        return next((own_value_of(each["content"]) for each in answer["contents"]), None)

    def _all_records(self) -> dict[str, Ulid]:
        try:
            entries = list(
                self._api.pages(f"trees/{ref_path(REF_RECORDS)}/entries", "entries", params={"content": "true"})
            )
        except RejectedError as error:
            if error.is_absent:
                return {}
            raise
        found = {elements_of(each["name"])[0]: own_value_of(each["content"]) for each in entries}
        return {name: value for name, value in found.items() if value is not None}

    def _log_pages(self, at: str, limit: int | None) -> Iterator[list[Commit]]:
        """The log in pages, each read with the few commits beneath it that its times depend on."""
        following: str | None = at
        while following is not None:
            wanted = _PAGE if limit is None else min(limit, _PAGE)
            with _at(at):
                answer = self._api.read(
                    f"trees/{ref_path('', following)}/history", params={"max-records": str(wanted + LOOKBACK)}
                )
            read = [commit_of(entry) for entry in answer["logEntries"]]
            times = commit_times([time for _, time in read])
            page = [replace(commit, committed_at=time) for (commit, _), time in zip(read, times, strict=True)][:wanted]
            yield page
            limit = None if limit is None else limit - len(page)
            is_over = limit == 0 or not page or not page[-1].parents
            following = None if is_over else page[-1].parents[0]


@contextmanager
def _at(commit: str) -> Iterator[None]:
    try:
        yield
    except RejectedError as error:
        if error.is_absent:
            raise CommitNotFoundError(commit) from error
        raise


def _absent_ref(error: RejectedError, name: str) -> Exception:
    return RefNotFoundError(name) if error.is_absent else error


def _ref(answer: Json, recorded: Ulid | None) -> Ref:
    return Ref(answer["name"], kind_of(answer), answer["hash"], incarnation_of(answer["name"], recorded))


def _known(elements: tuple[str, ...], answer: Json) -> tuple[TableKey, Content] | None:
    """What a lake has at a key; None for what is ours, or what it does not know."""
    key, content = key_of(elements), content_of(answer)
    if key is None or content is None:
        if own_value_of(answer) is None:
            _log.debug("not shown", key=".".join(elements), kind=answer["type"])
        return None
    return key, content


def _is_plain(namespace: tuple[str, ...] | None) -> TypeGuard[tuple[str, ...]]:
    """Whether a namespace is spelled the same in Nessie's query; others are picked out of everything, here."""
    return bool(namespace) and all(_PLAIN.fullmatch(part) for part in namespace or ())
