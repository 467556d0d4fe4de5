"""Whether a run that was found half done can be gone on with. Pure."""

from __future__ import annotations

from headwater.sync.model import Origin
from headwater.sync.runs.model import Run, RunSpec, Shipped, Step


def reason_to_abandon(
    found: Run,
    wanted: RunSpec,
    *,
    is_target_on_main: bool,
    is_promoted_there: bool = True,
    cutover: Origin | None = None,
) -> str | None:
    """Why what a dead process left is not gone on with; None: it is.

    Its target may be older than what would be chosen now: what it has copied is needed for that too, and readers get
    something sooner. But everything that it rests on must be as it was. A run on shipped files is gone on with by who
    knows nothing of them; who begins one does not go on with another kind, nor to another `cutover`.
    """
    spec = found.spec
    if found.done in (Step.PROMOTE, Step.OBSERVE):
        # Readers may see it already, and only the watching is left; of a branch that was set back there is none.
        return None if is_promoted_there else "the replica was set back, and no longer leads to what it promoted"
    if not is_target_on_main:
        return "its target is no longer part of main"
    if spec.replica_head != wanted.replica_head:
        return "the replica has moved since"
    if spec.generation != wanted.generation:
        return f"the registry is at generation {wanted.generation}, and it began with {spec.generation}"
    if spec.history is not wanted.history:
        return f"it keeps the {spec.history} history, and {wanted.history} is wanted"
    if spec.tables != wanted.tables:
        return "other tables are wanted"
    if wanted.shipped is not Shipped.NO and spec.shipped is not wanted.shipped:
        return "it takes shipped files in another way"
    if cutover is not None and spec.target.hash != cutover.hash:
        return f"it goes to {spec.target.hash}, and {cutover.hash} is wanted"
    return None
