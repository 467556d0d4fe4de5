"""A process to be killed: copies or verifies files of one folder or bucket prefix, and notes what is done.

Run as `python -m tests.crash.copy_actor JOB URL NOTES`, with HEADWATER_FAILPOINTS saying where it dies.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from headwater.app import App, location_of
from headwater.kernel import failpoints, settings
from headwater.kernel.metrics import Metrics
from headwater.regions.registry.model import Region, Registry
from headwater.sync.copy.metrics import Meter
from headwater.sync.copy.model import BatchReport, CopyBatch, CopyItem
from headwater.sync.copy.opening import open_ports
from headwater.sync.copy.protocol import Copier
from headwater.sync.runs.model import Backlog
from headwater.sync.verify.model import VerifyItem
from headwater.sync.verify.protocol import Verifier
from headwater.tables.files import Files

BATCHES = 4
FILES = 5


def content(batch: int, number: int) -> bytes:
    return f"{batch}-{number}".encode() * 1000


def batches(url: str) -> list[CopyBatch]:
    """The plan: what it is does not depend on what was done."""
    root = location_of(url)
    return [
        CopyBatch(
            str(batch),
            tuple(
                CopyItem(f"{root}/us/{name}", f"{root}/eu/{name}", len(content(batch, number)))
                for number in range(FILES)
                for name in [f"b{batch}/f{number}"]
            ),
        )
        for batch in range(BATCHES)
    ]


def main(job: str, url: str, notes: Path) -> None:
    environ = os.environ
    app = App(settings.load(environ=environ))
    root = location_of(url)
    regions = tuple(Region(name, f"{root}/{name}/", f"main_replica_{name}") for name in ("us", "eu"))
    registry = Registry(regions, tuple(region.local_prefix for region in regions))
    ports = open_ports(registry, Files({root: app.open_store(url)}), app.settings, environ)
    planned = batches(url)
    if job == "verify":
        items = (VerifyItem(item, may_replace=True) for batch in planned for item in batch.items)
        report = Verifier(ports, rate=1.0).verify(items)
        sys.stdout.write(json.dumps({"recopied": report.recopied_files}) + "\n")
        return
    done = set(notes.read_text().split()) if notes.exists() else set()

    def note(report: BatchReport) -> None:
        with notes.open("a") as stream:
            stream.write(f"{report.batch}\n")
            stream.flush()
            os.fsync(stream.fileno())

    left = [batch for batch in planned if batch.id not in done]
    meter = Meter(Metrics(), "eu", app.clock)
    Copier(ports, meter, app.clock, processes=1).run(left, note, Backlog())
    sys.stdout.write(json.dumps({"batches": len(left)}) + "\n")


if __name__ == "__main__":
    failpoints.arm_from(os.environ.get("HEADWATER_FAILPOINTS", ""))
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
