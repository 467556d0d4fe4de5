"""A process to be killed or stopped: commits to a lake, and prints what it tries and what it was told.

Run as `python -m tests.crash.catalog_actor URL NAME COMMITS`, with HEADWATER_FAILPOINTS saying where it dies. Each
commit adds one to the number of the table `shared`, which all actors fight for, and gives the actor's own table a
version that is named like the operation.
"""

from __future__ import annotations

import json
import sys

from headwater.app import App
from headwater.catalog.embedded.open import open_embedded
from headwater.catalog.embedded.protocol import EmbeddedCatalog
from headwater.catalog.model import Change, CommitRequest, Put, TableContent, TableKey
from headwater.kernel import failpoints, settings
from headwater.kernel.errors import ConflictError, OutcomeUnknownError
from headwater.kernel.ids import Ulid, new_ulid
from headwater.sequence.protocol import WRITING

SHARED = TableKey.parse("shared")


def open_lake(app: App, url: str) -> EmbeddedCatalog:
    store = app.open_store(url, needed=WRITING)
    return open_embedded(store, clock=app.clock, randomness=app.randomness, policy=app.retry().policy)


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def request(catalog: EmbeddedCatalog, name: str, operation: Ulid) -> CommitRequest:
    own, head = TableKey.parse(name), catalog.ref("main").hash
    present = catalog.content(head, [SHARED, own])
    shared = present.get(SHARED)
    count = int(shared.metadata_location) + 1 if isinstance(shared, TableContent) else 1
    changes: dict[TableKey, Change] = {
        SHARED: Put(TableContent("shared", str(count), count, 0, 0, 0)),
        own: Put(TableContent(name, operation, None, 0, 0, 0)),
    }
    expected = {SHARED: shared, own: present.get(own)}
    return CommitRequest("main", head, changes, expected, name, f"no. {count}", operation)


def work(app: App, catalog: EmbeddedCatalog, name: str, commits: int) -> None:
    done = 0
    while done < commits:
        operation = new_ulid(app.clock, app.randomness)
        say(outcome="trying", operation=operation)
        try:
            commit = catalog.commit(request(catalog, name, operation))
        except ConflictError as error:
            say(outcome="conflict", operation=operation, kind=error.kind)
        except OutcomeUnknownError as error:
            say(outcome="unknown", operation=error.operation)
        else:
            say(outcome="committed", operation=operation, hash=commit.hash)
            done += 1


def main() -> None:
    url, name, commits = sys.argv[1:]
    app = App(settings.load())
    catalog = open_lake(app, url)
    failpoints.arm_from(settings.environment().get("HEADWATER_FAILPOINTS", ""))
    work(app, catalog, name, int(commits))


if __name__ == "__main__":
    main()
