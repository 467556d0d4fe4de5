"""Making a Nessie repository a lake, and opening one.

A repository has its branch `main` from its beginning; what makes it a lake is the namespace `default` on it. Of several
that make it at once one puts it there, and all of them end with the same lake. What engines have put there stays.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Required, TypedDict, Unpack

import httpx

from headwater.catalog.errors import ExpectedVersionMismatchError
from headwater.catalog.model import CommitRequest, NamespaceContent, Put, TableKey
from headwater.catalog.names import DEFAULT_BRANCH, DEFAULT_NAMESPACE
from headwater.catalog.nessie.codec import StrangeAnswerError
from headwater.catalog.nessie.model import NO_ANCESTOR
from headwater.catalog.nessie.protocol import NessieCatalog
from headwater.catalog.nessie.transport import NessieApi
from headwater.catalog.nessie.urls import NessieUrl, is_nessie_url, parse_nessie_url
from headwater.kernel.clock import Clock
from headwater.kernel.errors import UsageError
from headwater.kernel.ids import new_ulid
from headwater.kernel.metrics import Metrics
from headwater.kernel.randomness import Randomness
from headwater.kernel.retry import Retry, RetryPolicy

__all__ = ["NessieOptions", "NessieUrl", "init_nessie", "is_nessie_url", "open_nessie", "parse_nessie_url"]

INIT_ACTOR = "headwater:init"
# A commit on a temporary branch takes a moment; one that is this old has no writer any more.
ABANDONED_AFTER = timedelta(hours=1)


class NessieOptions(TypedDict, total=False):
    """How a server is talked to, and by which clock."""

    clock: Required[Clock]
    randomness: Required[Randomness]
    policy: RetryPolicy | None
    answer_seconds: float
    token: str | None
    transport: httpx.BaseTransport | None
    metrics: Metrics | None


def init_nessie(url: NessieUrl, **options: Unpack[NessieOptions]) -> NessieCatalog:
    """Make the repository a lake, unless it is one, and open it."""
    catalog = _connected(url, options)
    key = TableKey.of_namespace((DEFAULT_NAMESPACE,))
    if key not in catalog.content(catalog.ref(DEFAULT_BRANCH).hash, [key]):
        request = CommitRequest(
            branch=DEFAULT_BRANCH,
            head=None,
            changes={key: Put(NamespaceContent(new_ulid(options["clock"], options["randomness"])))},
            expected={key: None},
            actor=INIT_ACTOR,
            message="a new lake",
            operation=new_ulid(options["clock"], options["randomness"]),
        )
        try:
            catalog.commit(request)
        except ExpectedVersionMismatchError as error:
            if not isinstance(error.actual, NamespaceContent):
                raise
    return catalog


def open_nessie(url: NessieUrl, *, read_only: bool = False, **options: Unpack[NessieOptions]) -> NessieCatalog:
    """The catalog of an existing lake."""
    catalog = _connected(url, options)
    key = TableKey.of_namespace((DEFAULT_NAMESPACE,))
    if key not in catalog.content(catalog.ref(DEFAULT_BRANCH).hash, [key]):
        raise UsageError(
            f"{url} is no lake: {DEFAULT_BRANCH} has no namespace {DEFAULT_NAMESPACE}",
            hint="run `headwater init`",
            lake=str(url),
        )
    if not read_only:
        catalog.sweep_temporaries(options["clock"].now() - ABANDONED_AFTER)
    return catalog


def _connected(url: NessieUrl, options: NessieOptions) -> NessieCatalog:
    retry = Retry(options.get("policy") or RetryPolicy(), options["clock"], options["randomness"])
    api = NessieApi(
        url.api,
        retry=retry,
        answer_seconds=options.get("answer_seconds", 30.0),
        token=options.get("token"),
        transport=options.get("transport"),
        metrics=options.get("metrics"),
    )
    config = api.read("config")
    if config.get("noAncestorHash") != NO_ANCESTOR or config.get("maxSupportedApiVersion", 0) < 2:
        raise StrangeAnswerError(f"{url.api} speaks no version 2 of its API")
    if config.get("defaultBranch") != DEFAULT_BRANCH:
        raise UsageError(
            f"the default branch of {url.api} is {config.get('defaultBranch')!r}, not {DEFAULT_BRANCH!r}",
            hint=f"set `nessie.server.default-branch` to {DEFAULT_BRANCH}",
        )
    return NessieCatalog(api, str(url), retry=retry)
