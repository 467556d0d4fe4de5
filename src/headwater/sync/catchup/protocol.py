"""How far a replica is behind `main`."""

from __future__ import annotations

from headwater.catalog.errors import BehindHorizonError, CommitNotFoundError
from headwater.catalog.model import Commit
from headwater.catalog.port import Catalog
from headwater.sync.catchup.model import Pending
from headwater.sync.model import ORIGIN_BRANCH, Origin, origin_to_show


def pending(catalog: Catalog, shown: Origin | None, *, at_most: int) -> Pending | None:
    """The commits of `main` that the replica does not show; None when it shows all.

    A replica that shows nothing, or what is no longer part of `main`, goes straight to the newest. No more of the log
    is read than a fast-forward needs, so of a replica that is far behind the oldest is one of the last `at_most`.
    """
    newest: Origin | None = None
    oldest: Origin | None = None
    count = 0
    try:
        for commit in catalog.log(catalog.ref(ORIGIN_BRANCH).hash):
            if shown is not None and commit.hash == shown.hash:
                break
            newest = newest or origin_to_show(commit)
            if _is_past(commit, shown):
                return Pending(count + 1, newest, newest)
            oldest, count = origin_to_show(commit), count + 1
            if shown is None or count > at_most:
                break
        else:
            oldest = newest  # what the replica shows is not part of main
    except (BehindHorizonError, CommitNotFoundError):
        oldest = newest
    return None if newest is None or oldest is None else Pending(count, oldest, newest)


def _is_past(commit: Commit, shown: Origin | None) -> bool:
    """Whether what is shown cannot come any more: times never go back along the log."""
    return shown is not None and commit.committed_at < shown.created_at
