"""A process on a real Nessie, to be killed or to race with others: it prints what it tries and what it was told.

Run as `python -m tests.crash.nessie_actor API KIND NAME COMMITS`:

    strict     commits its own table to `main`, on the head that it names
    promoter   the same on the replica branch
    reader     commits its own table to `main`, on whatever the head is, and rests on the table `shared`
    lake       loads rows into a table of the lake whose warehouse is NAME
    branches   makes a branch, commits to it, deletes it
    engine     knows nothing of us: writes `shared` by plain HTTP, as an engine does

Every commit of ours says what it rests on in its properties, so that the log can be judged without our code.
"""

from __future__ import annotations

import json
import sys

import httpx
import pyarrow as pa

import headwater
from headwater.catalog.errors import CatalogBusyError
from headwater.catalog.model import Change, CommitRequest, Content, Put, RefKind, TableContent, TableKey
from headwater.catalog.nessie.open import NessieUrl, open_nessie
from headwater.catalog.nessie.protocol import NessieCatalog
from headwater.kernel import failpoints, settings
from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import ConflictError
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.randomness import system_randomness
from headwater.kernel.retry import RetryPolicy
from headwater.publish.model import Attempt

SHARED = TableKey.parse("shared")
REPLICA = "main_replica_eu"
CLAIMED, RESTED = "test.head", "test.rests-on"
CLOCK, RANDOMNESS = SystemClock(), system_randomness()


def connect(api: str) -> NessieCatalog:
    policy = RetryPolicy(attempts=40, budget_seconds=30)
    return open_nessie(NessieUrl(api, "s3://lake"), clock=CLOCK, randomness=RANDOMNESS, policy=policy)


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def request(catalog: NessieCatalog, kind: str, name: str, operation: Ulid) -> CommitRequest:
    branch = REPLICA if kind == "promoter" else "main"
    own, head = TableKey.parse(name), catalog.ref(branch).hash
    present = catalog.content(head, [SHARED, own])
    before, shared = present.get(own), present.get(SHARED)
    content_id = before.content_id if before is not None else operation
    changes: dict[TableKey, Change] = {own: Put(TableContent(content_id, operation, None, 0, 0, 0))}
    expected: dict[TableKey, Content | None] = {own: before}
    properties = {CLAIMED: head}
    if kind == "reader":
        expected[SHARED] = shared
        properties = {RESTED: shared.metadata_location if isinstance(shared, TableContent) else ""}
    return CommitRequest(
        branch,
        None if kind == "reader" else head,
        changes,
        expected,
        name,
        "a change",
        operation,
        properties,
    )


def commits(catalog: NessieCatalog, kind: str, name: str, count: int) -> None:
    done = 0
    while done < count:
        operation = new_ulid(CLOCK, RANDOMNESS)
        say(outcome="trying", operation=operation)
        try:
            commit = catalog.commit(request(catalog, kind, name, operation))
        except CatalogBusyError:
            raise
        except ConflictError as error:
            say(outcome="conflict", operation=operation, kind=error.kind)
        else:
            say(outcome="committed", operation=operation, hash=commit.hash)
            done += 1


def loads(api: str, warehouse: str, count: int) -> None:
    lake = headwater.open(f"nessie+{api}?warehouse=file://{warehouse}")
    for number in range(count):
        operation = new_ulid(CLOCK, RANDOMNESS)
        say(outcome="trying", operation=operation, number=number)
        lake.load("t", pa.table({"id": [number]}), actor="dead", attempt=Attempt(operation))
        say(outcome="committed", operation=operation)


def branches(catalog: NessieCatalog, name: str, count: int) -> None:
    for _ in range(count):
        say(outcome="trying", operation="")
        ref = catalog.create_ref(RefKind.BRANCH, name, catalog.ref("main").hash)
        catalog.delete_ref(name, ref.hash, incarnation=ref.incarnation)


def engine(api: str, count: int) -> None:
    """Commits `shared` at whatever head it finds, again when it was too late, with no code of ours."""
    with httpx.Client(base_url=f"{api}/", timeout=30, trust_env=False) as client:
        done = 0
        while done < count:
            head = client.get("trees/main").raise_for_status().json()["reference"]["hash"]
            key = {"elements": list(SHARED.elements)}
            held = client.post(f"trees/main@{head}/contents", json={"requestedKeys": [key]}).json()["contents"]
            content = {
                "type": "ICEBERG_TABLE",
                "metadataLocation": f"s3://engine/{new_ulid(CLOCK, RANDOMNESS)}",
                "snapshotId": 1,
                "schemaId": 0,
                "specId": 0,
                "sortOrderId": 0,
            } | ({"id": held[0]["content"]["id"]} if held else {})
            body = {
                "commitMeta": {"message": "an engine"},
                "operations": [{"type": "PUT", "key": key, "content": content}],
            }
            answer = client.post(f"trees/main@{head}/history/commit", json=body)
            done += answer.is_success
            assert answer.status_code in (200, 409), answer.text


def main() -> None:
    api, kind, name, count = sys.argv[1:]
    failpoints.arm_from(settings.environment().get("HEADWATER_FAILPOINTS", ""))
    if kind == "engine":
        engine(api, int(count))
    elif kind == "lake":
        loads(api, name, int(count))
    elif kind == "branches":
        branches(connect(api), name, int(count))
    else:
        commits(connect(api), kind, name, int(count))


if __name__ == "__main__":
    main()
