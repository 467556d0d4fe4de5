"""Tables by one identity on both sides, where the catalog gives each branch's copy an id of its own. Pure.

Merges follow tables by their content ids. A catalog that chooses ids by itself (Nessie) gives a new one to a table that
a merge brings to a branch, so one table has several. What is the same everywhere is the UUID inside its document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from headwater.catalog.model import Content, Difference, TableContent, TableKey, ViewContent


def aligned(
    changes: Sequence[Difference],
    present: Mapping[TableKey, Content],
    uuid_of: Callable[[TableContent | ViewContent], UUID],
) -> tuple[Difference, ...]:
    """The same changes, told by the ids under which the target knows what changed; where only ids differ, none.

    `present` is everything on the target; only what bears a name or an id that changed is asked for its UUID.
    """
    ids: dict[UUID, str] = {}
    changed_ids = {each.content_id for change in changes for each in (change.before, change.after) if each is not None}
    changed_keys = {change.key for change in changes}
    on_target = (each for key, each in present.items() if key in changed_keys or each.content_id in changed_ids)
    in_changes = (each for change in changes for each in (change.before, change.after))
    for content in (*on_target, *in_changes):
        if isinstance(content, (TableContent, ViewContent)):
            ids.setdefault(uuid_of(content), content.content_id)

    def known(content: Content | None) -> Content | None:
        if not isinstance(content, (TableContent, ViewContent)):
            return content
        return replace(content, content_id=ids[uuid_of(content)])

    told = (Difference(change.key, known(change.before), known(change.after)) for change in changes)
    return tuple(each for each in told if each.before != each.after)
