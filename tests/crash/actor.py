"""A process to be killed or stopped: does one job on a namespace and prints what it was told, a JSON line each.

Run as `python -m tests.crash.actor JOB URL`, with HEADWATER_FAILPOINTS saying where it dies.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta

from headwater.app import App
from headwater.kernel import failpoints, settings
from headwater.kernel.errors import HeadwaterError, OutcomeUnknownError
from headwater.sequence.collect import Collector
from headwater.sequence.model import Namespace, Retention, SequenceConflictError
from headwater.sequence.pins import Pins
from headwater.sequence.protocol import Sequencer
from headwater.storage.port import Create, Overwrite

NAMESPACE = Namespace("", "manifest", ".manifest")


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def write(sequencer: Sequencer) -> None:
    """Write three objects, one after the other, and report each outcome."""
    for number in range(3):
        latest = sequencer.latest()
        try:
            entry = sequencer.write(f"child {number}".encode(), after=latest)
        except SequenceConflictError as error:
            say(outcome="conflict", writer=error.fields["operation"])
        except OutcomeUnknownError as error:
            say(outcome="unknown", writer=error.operation)
        else:
            say(outcome="committed", id=entry.id, writer=entry.writer)


def collect(sequencer: Sequencer) -> None:
    told = Collector(sequencer, Retention(timedelta(0), timedelta(0))).collect()
    say(outcome="collected", boundary=told.boundary_after, deleted=told.deleted)


def pin(sequencer: Sequencer) -> None:
    latest = sequencer.latest()
    assert latest is not None
    try:
        granted = Pins(sequencer).pin(latest, ttl=timedelta(minutes=10), holder="child")
    except HeadwaterError as error:
        say(outcome="refused", error=str(error))
    else:
        say(outcome="granted", id=granted.id, writer=granted.writer)


def put(sequencer: Sequencer) -> None:
    """Create an object, then replace it."""
    sequencer.store.put("plain", b"created", Create())
    say(outcome="created")
    sequencer.store.put("plain", b"replaced", Overwrite())
    say(outcome="replaced")


JOBS = {"write": write, "collect": collect, "pin": pin, "put": put}


def main() -> None:
    job, url = sys.argv[1:]
    app = App(settings.load())
    failpoints.arm_from(settings.environment().get("HEADWATER_FAILPOINTS", ""))
    JOBS[job](app.open_sequencer(url, "manifest", suffix=".manifest"))


if __name__ == "__main__":
    main()
