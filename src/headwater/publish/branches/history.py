"""Commits by their hashes, as far as they are kept."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.catalog.errors import BehindHorizonError, CommitNotFoundError
from headwater.catalog.model import Commit
from headwater.catalog.port import Catalog


class History:
    """Reads commits along the log as far as it goes: most of them are asked for in that order."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[str, Commit | None] = {}
        self._walks: dict[str, Iterator[Commit]] = {}

    def commit(self, at: str) -> Commit | None:
        """The commit, or None when it is not kept."""
        if at not in self._known:
            self._known[at] = self._read(at)
        return self._known[at]

    def _read(self, at: str) -> Commit | None:
        walk = self._walks.pop(at, None)
        try:
            walk = walk or self._catalog.log(at)
            commit = next(walk, None)
        except (BehindHorizonError, CommitNotFoundError):
            return None
        if commit is not None and commit.parents:
            self._walks[commit.parents[0]] = walk
        return commit
