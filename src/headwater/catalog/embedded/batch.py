"""Commits on their way: judged one on another, stored side by side, and carried by one manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from headwater.catalog.embedded.model import Manifest, StoredCommit
from headwater.catalog.embedded.objects import Encoded, Planned
from headwater.catalog.model import Commit, Ref
from headwater.kernel.errors import HeadwaterError


@dataclass
class Staged:
    """A commit on its way, and its objects, to which nothing refers yet. They are put at this moment, or later."""

    commit: Commit
    put_at: datetime
    objects: Mapping[str, Encoded]
    is_stored: bool = False

    def follows(self, parents: Sequence[StoredCommit]) -> bool:
        """Whether it was made on these parents."""
        return self.commit.parents == tuple(parent.commit.hash for parent in parents)


@dataclass
class Batch:
    """One try: the manifest that it follows on, the one that it makes of it, and an answer to each request so far."""

    before: Manifest
    manifest: Manifest
    planned: Planned
    answers: list[Commit | HeadwaterError] = field(default_factory=list)
    unstored: list[Staged] = field(default_factory=list)

    @property
    def moved(self) -> Iterator[tuple[Ref, Ref]]:
        """The branches that get commits, before and after."""
        pairs = ((self.before.refs[name], ref) for name, ref in self.manifest.refs.items())
        return (pair for pair in pairs if pair[0] != pair[1])

    def accept(self, branch: str, staged: Staged) -> None:
        """The commit is the branch's head from now on."""
        self.manifest = self.manifest.with_ref(replace(self.manifest.refs[branch], hash=staged.commit.hash))
        self.planned.add(staged.objects)
        self.answers.append(staged.commit)
        if not staged.is_stored:
            self.unstored.append(staged)


class OvertakenError(HeadwaterError):
    """The branch has moved on while it was read, and what was read is gone: look again."""
