"""What may be deleted. Pure. An object goes only if every line says so; the first that does not is its fate.

    of a file that was staged

        its operation began before the staging horizon     else YOUNG: it may still be committed (P10)
        and not before the history that is kept            else BEHIND_HISTORY: a commit of it may be forgotten
        no retained commit is of this operation            else COMMITTED
        no sidecar is of this operation                    else PENDING
        everything its table leads to could be read        else UNREADABLE
        no retained commit leads to it                     else REACHED

    of a fork

        its branch is gone, and with it its incarnation    else BRANCH_LIVES: the next write follows on it
        the branch was made within the history             else BEHIND_HISTORY
        everything its table leads to could be read        else UNREADABLE
        it is an orphan, as forks/decide.py says           else REACHED, PENDING
        all of its objects are older than the horizon      else YOUNG

What a commit has ever referenced is thus never deleted: a commit of an operation is not older than the operation, and
as far back as the history goes all commits are known, those of deleted branches too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headwater.kernel.ids import time_of
from headwater.publish.cleanup.model import Fate, Fork, Found, Known, StagedFile
from headwater.publish.forks.decide import incarnation_of, standing_of
from headwater.publish.forks.model import ForkFacts, ForkStanding
from headwater.publish.heads import FORKS
from headwater.publish.sidecars import FOLDER as SIDECARS
from headwater.sequence.model import GC_FOLDER, ID_DIGITS
from headwater.tables.head import METADATA_FOLDER, METADATA_SUFFIX

_NUMBERED = re.compile(rf"[0-9]{{{ID_DIGITS}}}(\.[A-Za-z0-9_-]+)+")
_DOCUMENT = re.compile(rf"(.+)/{METADATA_FOLDER}/[0-9]{{{ID_DIGITS}}}{re.escape(METADATA_SUFFIX)}")
_OURS = ("_headwater/", f"{SIDECARS}/", f"{GC_FOLDER}/")


def is_bookkeeping(path: str) -> bool:
    """Whether the object is none of a table's files: the catalog's, a sidecar, a boundary, of another sequence."""
    if path.startswith(_OURS) or f"/{GC_FOLDER}/" in path:
        return True
    return bool(_NUMBERED.fullmatch(path.rpartition("/")[2])) and root_of(path) is None


def root_of(path: str) -> str | None:
    """The root of the sequence whose document this is; None when it is no document."""
    found = _DOCUMENT.fullmatch(path)
    return None if found is None else found[1]


def folder_of(root: str) -> str:
    """The folder of the table that has the sequence at this root, as its own or as a fork."""
    return root.rpartition(f"/{FORKS}/")[0] if incarnation_of(root) is not None else root


def fate_of_file(file: StagedFile, known: Known) -> Fate:
    """What becomes of a file that was staged."""
    began_at = time_of(file.operation)
    if began_at >= known.horizon:
        return Fate.YOUNG
    if known.history is not None and began_at < known.history + known.margin:
        return Fate.BEHIND_HISTORY
    if file.operation in known.committed:
        return Fate.COMMITTED
    if file.operation in known.pending:
        return Fate.PENDING
    if is_unreadable(file.found.path, known):
        return Fate.UNREADABLE
    return Fate.REACHED if file.found.path in known.reached else Fate.NEVER_REFERENCED


def is_unreadable(path: str, known: Known) -> bool:
    """Whether something that could lead to this path could not be read; of a file in no table, anything could."""
    if not known.unreadable:
        return False
    folders = {folder for folder in known.tables if path.startswith(folder + "/")}
    return bool(folders & known.unreadable) if folders else bool(known.unreadable)


def facts_of(fork: Fork, known: Known) -> ForkFacts:
    """What is known of a fork."""
    lives = fork.incarnation in known.live
    is_used = any(each.path in known.reached for each in fork.objects)
    return ForkFacts(
        is_pinned=lives and is_used,
        planned_by=(fork.incarnation,) if fork.root in known.planned else (),
        is_used=is_used or (None if is_unreadable(fork.objects[0].path, known) else False),
    )


def fate_of_fork(fork: Fork, known: Known) -> Fate:
    """What becomes of a whole fork."""
    if fork.incarnation in known.live:
        return Fate.BRANCH_LIVES
    if known.history is not None and time_of(fork.incarnation) < known.history + known.margin:
        return Fate.BEHIND_HISTORY
    match standing_of(facts_of(fork, known)):
        case ForkStanding.INDETERMINATE:
            return Fate.UNREADABLE
        case ForkStanding.LEGITIMATE:
            return Fate.PENDING if fork.root in known.planned else Fate.REACHED
        case ForkStanding.ORPHAN:
            newest = max(each.last_modified for each in fork.objects)
            return Fate.NEVER_REFERENCED if newest + known.margin < known.horizon else Fate.YOUNG


def in_order(doomed: Iterable[Found]) -> list[Found]:
    """Children before parents, so that what is left after a crash never leads to what is gone.

    Forks come first, younger branches before older ones, each from its last document back; then the documents of tables
    that were never made; then manifest lists and manifests; then data.
    """
    return sorted(doomed, key=_place, reverse=True)


def _place(found: Found) -> tuple[bool, str, bool, bool, str]:
    root = root_of(found.path)
    incarnation = incarnation_of(root) if root is not None else None
    in_metadata = f"/{METADATA_FOLDER}/" in found.path
    return (incarnation is not None, incarnation or "", root is not None, in_metadata, found.path)
