"""What a sidecar that was found means, and what is to be done about it. Pure.

    published?   states of the heads                         nothing read has changed   verdict
    yes          any                                          any                        PUBLISHED   audit, delete (P4)
    no           branch or all tables gone                    any                        DISCARD     audit, delete (P12)
    no           any behind its pin                           any                        ABORT       loud, kept
    no           all as planned                               yes                        FORWARD     one publish
    no           all as planned                               no                         BACK        (P8)
    no           anything else                                any                        BACK

A head that is behind its pin cannot be: the pin is published after the head has moved. Somebody deleted objects.
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


def pins_hold(facts: Collection[tuple[PlannedHead, HeadFacts]]) -> bool:
    """Whether the branch pins, for every head, the version that the plan was made on."""
    return all(head.pinned == found.pinned for head, found in facts)
