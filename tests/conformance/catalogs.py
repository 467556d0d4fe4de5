"""Lakes for the catalog suite: each backend opens a fresh one, as often as a test wants to be another process.

A backend that is added needs a line in `LAKES` and a case in `lake`. What the suite may rely on is in the port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from headwater.catalog.embedded.open import init_embedded, open_embedded
from headwater.catalog.model import (
    Change,
    Commit,
    CommitRequest,
    Content,
    Delete,
    NamespaceContent,
    Put,
    TableContent,
    TableKey,
    ViewContent,
)
from headwater.catalog.nessie.open import NessieUrl, init_nessie, open_nessie
from headwater.catalog.port import Catalog
from headwater.kernel.clock import SystemClock
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.randomness import system_randomness
from headwater.kernel.retry import RetryPolicy
from headwater.storage.port import ObjectStore
from tests.fixtures.nessie import API, ModelNessie, reset

CLOCK, RANDOMNESS = SystemClock(), system_randomness()
LAKES = (
    "embedded-memory",
    "embedded-file",
    pytest.param("embedded-versitygw", marks=pytest.mark.services),
    "nessie-model",
    pytest.param("nessie-server", marks=[pytest.mark.services, pytest.mark.proves("catalog/nessie")]),
)


@dataclass(frozen=True)
class Lake:
    """A fresh lake; each `open` shares nothing with the others but the lake."""

    open: Callable[[], Catalog]


def make_lake(kind: str, open_backend: Callable[[str], ObjectStore], nessie_url: Callable[[], str]) -> Lake:
    backend, _, store_kind = kind.partition("-")
    if backend == "nessie":
        return _on_nessie(None if store_kind == "server" else ModelNessie(), nessie_url)
    assert backend == "embedded", kind
    store = open_backend(store_kind)
    init_embedded(store, clock=CLOCK, randomness=RANDOMNESS)
    return Lake(lambda: open_embedded(store, clock=CLOCK, randomness=RANDOMNESS))


def _on_nessie(model: ModelNessie | None, nessie_url: Callable[[], str]) -> Lake:
    url = NessieUrl(API if model else f"{nessie_url()}/api/v2", "s3://lake")
    if model is None:
        reset(nessie_url())
    policy = RetryPolicy(attempts=20)  # many turns at one server
    init_nessie(url, clock=CLOCK, randomness=RANDOMNESS, policy=policy, transport=model)
    return Lake(lambda: open_nessie(url, clock=CLOCK, randomness=RANDOMNESS, policy=policy, transport=model))


def fresh() -> Ulid:
    return new_ulid(CLOCK, RANDOMNESS)


def table(version: int = 1, content_id: str | None = None) -> TableContent:
    """A version of a table; each has a metadata file of its own."""
    return TableContent(content_id or fresh(), f"s3://lake/t/metadata/{version}-{fresh()}.json", version, 0, 0, 0)


def view() -> ViewContent:
    return ViewContent(fresh(), f"s3://lake/v/metadata/{fresh()}.json", 1, 0)


def key(text: str) -> TableKey:
    return TableKey.parse(text)


def space(*elements: str) -> TableKey:
    return TableKey.of_namespace(elements)


def put(catalog: Catalog, contents: Mapping[TableKey, Content | None], branch: str = "main", **more: object) -> Commit:
    """Commit these contents on whatever is there now; None deletes."""
    return catalog.commit(request(catalog, contents, branch, **more))


def request(
    catalog: Catalog, contents: Mapping[TableKey, Content | None], branch: str = "main", **more: object
) -> CommitRequest:
    """A request on the present head, with the present versions of what it touches."""
    head = catalog.ref(branch).hash
    present = catalog.content(head, list(contents))
    changes: dict[TableKey, Change] = {}
    for each, content in contents.items():
        before = present.get(each)
        if content is None:
            changes[each] = Delete()
        else:
            changes[each] = Put(replace(content, content_id=before.content_id) if before else content)
    made = CommitRequest(
        branch=branch,
        head=head,
        changes=changes,
        expected={each: present.get(each) for each in contents},
        actor="tester",
        message="a change",
        operation=fresh(),
    )
    return replace(made, **more)  # type: ignore[arg-type]


def read(catalog: Catalog, at: str) -> dict[str, Content]:
    """Everything at a commit, but the namespaces, without the ids that a backend may choose."""
    return {
        str(each): anonymous(content)
        for each, content in catalog.contents(at)
        if not isinstance(content, NamespaceContent)
    }


def anonymous(content: Content) -> Content:
    return replace(content, content_id="")
