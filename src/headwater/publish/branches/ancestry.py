"""Where two commits parted. Pure, over a function that knows commits."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable

from headwater.catalog.model import Commit

Known = Callable[[str], Commit | None]

_ONE, _OTHER, _BENEATH = 1, 2, 4
_BOTH = _ONE | _OTHER


def merge_bases(one: str, other: str, known: Known) -> tuple[str, ...]:
    """The common ancestors that are not ancestors of another one, over all parents; the newest first, then by hash.

    A commit counts as its own ancestor. There is more than one when branches were merged into each other crosswise,
    and none when history is no longer kept far enough: `known` gives None for such a commit, and the search ends there.

    Commits are looked at newest first, each once for every side that it is seen from. What lies beneath a common
    ancestor is marked, and is none itself. A commit's time never precedes its parents' (P13), so everything between two
    commits is looked at before the search has passed the older one.
    """
    marks: defaultdict[str, int] = defaultdict(int)
    ahead: list[tuple[float, str]] = []

    def look_at(name: str, mark: int) -> None:
        commit = known(name)
        if commit is not None and marks[name] | mark != marks[name]:
            marks[name] |= mark
            heapq.heappush(ahead, (-commit.committed_at.timestamp(), name))

    look_at(one, _ONE)
    look_at(other, _OTHER)
    common: dict[str, float] = {}
    while ahead and (ahead[0][0] <= max(common.values(), default=-math.inf) or _may_be_more(ahead, marks)):
        age, name = heapq.heappop(ahead)
        commit, mark = known(name), marks[name]
        assert commit is not None  # it was looked at
        if mark & _BOTH == _BOTH:
            if not mark & _BENEATH:
                common[name] = age
            mark |= _BENEATH
        for parent in commit.parents:
            look_at(parent, mark)
    best = [(age, name) for name, age in common.items() if not marks[name] & _BENEATH]
    return tuple(name for _, name in sorted(best))


def _may_be_more(ahead: list[tuple[float, str]], marks: defaultdict[str, int]) -> bool:
    """Whether something is ahead that lies beneath no common ancestor yet."""
    return any(not marks[name] & _BENEATH for _, name in ahead)
