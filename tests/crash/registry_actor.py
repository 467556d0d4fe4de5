"""A process to be killed or stopped: publishes a registry, and prints what it was told.

Run as `python -m tests.crash.registry_actor URL BUCKET`, with HEADWATER_FAILPOINTS saying where it dies. The registry
names one source, the bucket, by which its rules are known again.
"""

from __future__ import annotations

import json
import sys

from headwater.app import App
from headwater.kernel import failpoints, settings
from headwater.kernel.errors import ConflictError
from headwater.regions.registry import Registry, parse_registry


def rules(bucket: str) -> Registry:
    return parse_registry(f"{{version: 2, regions: {{us: {{local_prefix: s3://us/}}}}, sources: ['s3://{bucket}/']}}")


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def main(url: str, bucket: str) -> None:
    loaded = settings.load(environ={**settings.environment(), "HEADWATER_REGISTRY": url})
    failpoints.arm_from(settings.environment().get("HEADWATER_FAILPOINTS", ""))
    try:
        made = App(loaded).open_publisher().publish(rules(bucket), actor="actor")
    except ConflictError:
        say(outcome="conflict")
    else:
        say(outcome="published", generation=made.number)


if __name__ == "__main__":
    main(*sys.argv[1:])
