"""The decisions of the embedded catalog, without I/O: where refs may go, what is kept, what may be read.

What a commit may do is judged in the same way on every backend: catalog/judging.py.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from headwater.catalog.embedded.model import Manifest
from headwater.catalog.errors import BeganTooEarlyError, BehindHorizonError, RefExistsError, RefNotFoundError
from headwater.catalog.judging import judge_ref
from headwater.catalog.model import Ref, RefKind
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.kernel.errors import RefusedError, UsageError
from headwater.kernel.ids import Ulid


def found_ref(manifest: Manifest, name: str) -> Ref:
    """The ref, or an error that names it."""
    ref = manifest.refs.get(name)
    if ref is None:
        raise RefNotFoundError(name)
    return ref


def found_branch(manifest: Manifest, name: str) -> Ref:
    """The branch; a tag takes no commits."""
    ref = found_ref(manifest, name)
    if ref.kind is not RefKind.BRANCH:
        raise UsageError(f"{name} is a tag, and takes no commits", hint="commit to a branch", ref=name)
    return ref


def commit_time(now: datetime, parent_time: datetime) -> datetime:
    """A commit's time: by the clock, but never before its parent's, whatever clocks say (hazard P13)."""
    return max(now, parent_time)


def may_be_swept(manifest: Manifest, put_at: datetime) -> bool:
    """Whether objects that were put at this moment, and that nothing refers to yet, may have been swept since."""
    staging = manifest.horizons.staging
    return staging is not None and put_at < staging


def judge_began(manifest: Manifest, began_at: datetime | None) -> None:
    """Refuse a change that began before the staging horizon: files that it staged may be gone (hazard P10)."""
    staging = manifest.horizons.staging
    if began_at is not None and staging is not None and began_at < staging:
        raise BeganTooEarlyError(began_at, staging)


def is_under_a_ref(manifest: Manifest, commit: str) -> bool:
    """Whether a ref stands on the commit."""
    return any(ref.hash == commit for ref in manifest.refs.values())


def is_kept(manifest: Manifest, commit: str, current_until: datetime) -> bool:
    """Whether everything that the commit leads to is still there: not behind the horizon, or under a ref.

    It counts from `current_until`: when the commit was superseded by one that has it as first parent, or, when no such
    commit is known, from its own time.
    """
    history = manifest.horizons.history
    return history is None or current_until >= history or is_under_a_ref(manifest, commit)


def judge_kept(manifest: Manifest, commit: str, current_until: datetime) -> None:
    """Refuse a commit behind the horizon (hazard P6)."""
    if not is_kept(manifest, commit, current_until):
        assert manifest.horizons.history is not None  # otherwise everything is kept
        raise BehindHorizonError(commit, current_until, manifest.horizons.history)


def with_new_ref(manifest: Manifest, ref: Ref, current_until: datetime) -> Manifest:
    """A ref more, on a commit that is kept."""
    taken = manifest.refs.get(ref.name)
    if taken is not None:
        raise RefExistsError(ref.name, taken.hash)
    judge_kept(manifest, ref.hash, current_until)
    return manifest.with_ref(ref)


def without_ref(manifest: Manifest, name: str, expected: str, incarnation: Ulid | None = None) -> Manifest:
    """A ref less; never the default branch."""
    if name == DEFAULT_BRANCH:
        raise RefusedError(f"{name} is the default branch, and stays", hint="assign it another commit", ref=name)
    judge_ref(found_ref(manifest, name), expected, incarnation)
    return manifest.without_ref(name)


def with_moved_ref(
    manifest: Manifest, name: str, to: str, current_until: datetime, expected: str, incarnation: Ulid | None = None
) -> Manifest:
    """A ref elsewhere, on a commit that is kept."""
    ref = found_ref(manifest, name)
    judge_ref(ref, expected, incarnation)
    judge_kept(manifest, to, current_until)
    return manifest.with_ref(replace(ref, hash=to))


def judge_past(moment: datetime, now: datetime) -> None:
    """Refuse a horizon that the clock has not reached: it could never be taken back, and nothing would be kept."""
    if moment > now:
        raise RefusedError(
            f"{moment.isoformat()} is in the future: it is {now.isoformat()}",
            hint="a horizon is a moment that has passed; see to the clock if it is wrong",
            horizon=moment.isoformat(),
        )


def with_history_horizon(manifest: Manifest, moment: datetime) -> Manifest:
    """The history horizon at this moment, unless it is there or beyond: what may be gone stays gone."""
    if not _rises(manifest.horizons.history, moment):
        return manifest
    return replace(manifest, horizons=replace(manifest.horizons, history=moment))


def with_staging_horizon(manifest: Manifest, moment: datetime) -> Manifest:
    """The staging horizon at this moment, unless it is there or beyond."""
    if not _rises(manifest.horizons.staging, moment):
        return manifest
    return replace(manifest, horizons=replace(manifest.horizons, staging=moment))


def _rises(present: datetime | None, moment: datetime) -> bool:
    return present is None or moment > present
