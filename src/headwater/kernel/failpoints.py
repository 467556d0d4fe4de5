"""Named places where a process can be made to die, stall, fail or dawdle.

Crash tests arm one of them, from Python with `arm` or in a child process by

    HEADWATER_FAILPOINTS="name=action[:arg][@n],..."

where the action is `kill` (SIGKILL of the own process), `stop` (SIGSTOP), `error[:text]` or
`delay:milliseconds`, and `@n` means only the n-th hit. Unarmed, a failpoint costs one lookup in an
empty dictionary. The table of armed points is the one piece of state that is global to a process,
because a crash is.
"""

from __future__ import annotations

import enum
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches

from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import HeadwaterError, UsageError


class Failpoint(enum.StrEnum):
    """Every failpoint there is, in the order of the rooms. Each is exercised by a crash test."""

    FILE_PUT_TEMPORARY_SYNCED = "storage.file.put.temporary-synced"
    FILE_PUT_LINKED = "storage.file.put.linked"
    FILE_UPDATE_LOCKED = "storage.file.update.locked"
    FILE_UPDATE_RENAMED = "storage.file.update.renamed"

    WRITE_BEFORE_CREATE = "sequence.write.before-create"
    WRITE_AFTER_CREATE = "sequence.write.after-create"
    WRITE_AFTER_CHECK = "sequence.write.after-check"

    ADVANCE_AFTER_READ = "sequence.advance.after-read"
    ADVANCE_AFTER_PUT = "sequence.advance.after-put"

    COLLECT_AFTER_LIST = "sequence.collect.after-list"
    COLLECT_AFTER_ADVANCE = "sequence.collect.after-advance"
    COLLECT_AFTER_PINS = "sequence.collect.after-pins"
    COLLECT_AFTER_DELETE = "sequence.collect.after-delete"

    PIN_AFTER_ASK = "sequence.pin.after-ask"
    PIN_AFTER_CHECK = "sequence.pin.after-check"

    REGISTRY_AFTER_OBJECT = "regions.publish.after-object"
    REGISTRY_AFTER_POINTER = "regions.publish.after-pointer"

    CATALOG_COMMIT_AFTER_OBJECTS = "catalog.commit.after-objects"
    CATALOG_COMMIT_AFTER_MANIFEST = "catalog.commit.after-manifest"

    NESSIE_REF_AFTER_CREATE = "nessie.ref.after-create"
    NESSIE_REF_AFTER_FORGET = "nessie.ref.after-forget"
    NESSIE_COMMIT_AFTER_TEMPORARY = "nessie.commit.after-temporary"
    NESSIE_COMMIT_AFTER_STAGED = "nessie.commit.after-staged"
    NESSIE_COMMIT_AFTER_COMMIT = "nessie.commit.after-commit"

    PUBLISH_AFTER_FILES = "publish.after-files"
    PUBLISH_AFTER_SIDECAR = "publish.after-sidecar"
    PUBLISH_AFTER_HEAD = "publish.after-head"
    PUBLISH_AFTER_COMMIT = "publish.after-commit"
    RECOVERY_AFTER_RESTORE = "publish.recovery.after-restore"
    RECOVERY_AFTER_PUBLISH = "publish.recovery.after-publish"

    COPY_AFTER_MOVE = "sync.copy.after-move"
    COPY_AFTER_NOTE = "sync.copy.after-note"
    VERIFY_AFTER_RECOPY = "sync.verify.after-recopy"
    SYNC_AFTER_PLAN = "sync.after-plan"
    SYNC_AFTER_LOCALISE = "sync.after-localise"
    PROMOTE_AFTER_REMOVALS = "sync.promote.after-removals"
    PROMOTE_AFTER_COMMIT = "sync.promote.after-commit"

    OPTIMIZE_AFTER_JOB = "optimize.after-job"
    OPTIMIZE_AFTER_FILES = "optimize.after-files"

    TIMESTAMPS_AFTER_PERSIST = "ingest.timestamps.after-persist"

    PRIMARY_BEFORE_COMMIT = "ingest.primary.before-commit"
    MAIN_AFTER_RESERVE = "ingest.main.after-reserve"
    MAIN_FLUSH_AFTER_SNAPSHOT = "ingest.main.flush.after-snapshot"
    MAIN_FLUSH_AFTER_COMMIT = "ingest.main.flush.after-commit"


class Action(enum.StrEnum):
    """What an armed failpoint does."""

    KILL = "kill"
    STOP = "stop"
    ERROR = "error"
    DELAY = "delay"


class FailpointError(HeadwaterError):
    """Raised by a failpoint that was armed with `error`."""


@dataclass
class Armed:
    """One armed failpoint; `only_hit` is 1-based, `None` means every hit."""

    point: Failpoint
    action: Action
    arg: str | None = None
    only_hit: int | None = None
    hits: int = field(default=0, compare=False)


_armed: dict[str, Armed] = {}


def hit(point: Failpoint) -> None:
    """Called by the product between two steps: does nothing unless a test armed `point`."""
    armed = _armed.get(point)
    if armed is None:
        return
    armed.hits += 1
    if armed.only_hit is not None and armed.hits != armed.only_hit:
        return
    match armed.action:
        case Action.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case Action.STOP:
            # Aimed at this thread: if it is aimed at the process, the caller runs on until another thread takes it.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        case Action.DELAY:
            SystemClock().sleep(int(armed.arg or 0) / 1000)
        case Action.ERROR:
            raise FailpointError(armed.arg or f"failpoint {point}", failpoint=str(point))


def parse(spec: str) -> tuple[Armed, ...]:
    """Read the syntax of `HEADWATER_FAILPOINTS`; an unknown name or action is refused."""
    return tuple(_parse_one(part.strip()) for part in spec.split(",") if part.strip())


def _parse_one(part: str) -> Armed:
    name, equals, rest = part.partition("=")
    if not equals:
        raise UsageError(f"failpoint {part!r} has no action", hint="name=action[:arg][@n]")
    known = [str(point) for point in Failpoint]
    if name not in known:
        near = get_close_matches(name, known, n=1)
        raise UsageError(
            f"there is no failpoint {name!r}",
            hint=f"did you mean {near[0]!r}?" if near else None,
            failpoint=name,
        )
    rest, at, count = rest.partition("@")
    action, colon, arg = rest.partition(":")
    if action not in list(Action):
        raise UsageError(f"failpoint {name!r}: unknown action {action!r}", hint="kill, stop, error[:text], delay:ms")
    if at and not (count.isdecimal() and int(count) > 0):
        raise UsageError(f"failpoint {name!r}: @{count} is not a positive number", failpoint=name)
    if action == Action.DELAY and not arg.isdecimal():
        raise UsageError(f"failpoint {name!r}: delay needs milliseconds, as in delay:250", failpoint=name)
    return Armed(Failpoint(name), Action(action), arg if colon else None, int(count) if at else None)


def arm_from(spec: str) -> None:
    """Arm what `spec` says for the rest of this process's life."""
    for armed in parse(spec):
        _armed[armed.point] = armed


@contextmanager
def arm(point: Failpoint, action: Action, *, arg: str | None = None, only_hit: int | None = None) -> Iterator[Armed]:
    """Arm one point for the length of a `with` block."""
    armed = Armed(point, action, arg, only_hit)
    before = _armed.get(point)
    _armed[point] = armed
    try:
        yield armed
    finally:
        del _armed[point]
        if before is not None:
            _armed[point] = before
