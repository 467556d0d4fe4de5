"""What a sidecar that was found means, and what is to be done about it. Pure.

    published?   states of the heads                         nothing read has changed   verdict
    yes          any                                          any                        PUBLISHED   audit, delete (P4)
    no           branch or all tables gone                    any                        DISCARD     audit, delete (P12)
    no           any behind its pin                           any                        ABORT       loud, kept
    no           all as planned                               yes                        FORWARD     one publish
    no           all as planned                               no                         BACK        (P8)
    no           anything else                                any                        BACK

A head that is behind its pin cannot be: the pin is published after the head has moved. Somebody deleted objects.

A rollback and a publish of the same change exclude each other, whoever makes them, and however long they stall on the
way. A publish needs every planned id to be the writer's, and every version that it rests on to be there still. A
rollback undoes what has moved only once one of the two can never be again: it occupied a planned id or found it taken,
or a version has changed. While neither is so, the change can only be rolled forward.
"""

from __future__ import annotations

from collections.abc import Collection

from headwater.catalog.model import TableContent
from headwater.publish.model import HeadFacts, HeadState, PlannedHead, Sidecar, Verdict


def state_of(sidecar: Sidecar, head: PlannedHead, facts: HeadFacts) -> HeadState:
    """Where this head is."""
    if _is_gone(head, facts):
        return HeadState.GONE
    if facts.pinned_id > facts.latest_id:
        return HeadState.BEHIND_PIN
    restore = sidecar.restore_identity(head)
    if restore in (facts.writer_at_planned, facts.writer_after):
        return HeadState.RESTORED
    if facts.latest_id < head.planned_id:
        return HeadState.NOT_MOVED
    if facts.latest_id > head.planned_id:
        return HeadState.MOVED_SEVERAL_TIMES
    return HeadState.AS_PLANNED if facts.writer_at_planned == head.identity else HeadState.MOVED_ONCE


def is_published(sidecar: Sidecar, head: PlannedHead, facts: HeadFacts) -> bool:
    """Whether the branch pins this plan, or something that follows on it (P4): a log may have lost that, a pin cannot.

    A pin that is past the planned version may also be that of a rollback, which follows on it too.
    """
    return (
        facts.writer_at_planned == head.identity
        and facts.pinned_id >= head.planned_id
        and facts.writer_after != sidecar.restore_identity(head)
    )


def _is_gone(head: PlannedHead, facts: HeadFacts) -> bool:
    """Whether the branch no longer holds the table that was planned for, but none or another of its name (P12)."""
    if head.pinned is None:
        return facts.pinned is not None and not _is_of(facts.pinned, head.incarnation)
    return not _is_of(facts.pinned, head.incarnation)


def _is_of(content: object, incarnation: str) -> bool:
    return isinstance(content, TableContent) and content.content_id == incarnation


def verdict_on(
    states: Collection[HeadState], *, published: bool, branch_lives: bool, reads_hold: bool, pins_hold: bool
) -> Verdict:
    """What is to be done about the sidecar; `pins_hold` says that the branch still pins what the plan was made on."""
    if published:
        return Verdict.PUBLISHED
    if not branch_lives or (states and all(state is HeadState.GONE for state in states)):
        return Verdict.DISCARD
    if HeadState.BEHIND_PIN in states:
        return Verdict.ABORT
    if all(state is HeadState.AS_PLANNED for state in states) and reads_hold and pins_hold:
        return Verdict.FORWARD
    return Verdict.BACK


def needs_restore(state: HeadState) -> bool:
    """Whether a rollback writes to this head: where the plan landed, and where it still could (P1)."""
    return state in (HeadState.NOT_MOVED, HeadState.AS_PLANNED)


def is_in_the_way(head: PlannedHead, state: HeadState, facts: HeadFacts) -> bool:
    """Whether the next writer of the table would find its place taken: the head is ahead of its pin, by this sidecar.

    Where the plan has not landed, whoever comes first takes the place, and no zombie can take it from them.
    """
    is_ours = state in (HeadState.AS_PLANNED, HeadState.RESTORED)
    return is_ours and head.pinned is not None and facts.latest_id > facts.pinned_id


def pins_hold(facts: Collection[tuple[PlannedHead, HeadFacts]]) -> bool:
    """Whether the branch pins, for every head, the version that the plan was made on."""
    return all(head.pinned == found.pinned for head, found in facts)
