"""One request to a Nessie server, and what each way of failing means.

    it was never sent                       nothing happened: `UnavailableError`
    4xx, but not 408 or 429                 Nessie did not do it, and says why: `RejectedError`
    408, 429, 5xx, no answer, no JSON       of a read: it is asked again, then `UnavailableError`;
                                            of a change: nobody knows: `LostAnswerError`
    413                                     it was too large to be looked at: `RefusedError`
    5xx: its role may move no ref           of a change: nothing happened: `RefusedError`

Reads are repeated because a branch that was just made may be answered with 500 at first (hazard R4).
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx

from headwater.catalog.nessie.codec import conflicts_of
from headwater.catalog.nessie.metrics import API_LATENCY, COMMIT, COMMIT_LATENCY, operation_of
from headwater.catalog.nessie.model import Conflict, Json
from headwater.kernel.errors import HeadwaterError, RefusedError, UnavailableError, UsageError
from headwater.kernel.metrics import Metrics
from headwater.kernel.per_process import PerProcess
from headwater.kernel.retry import Retry

_CONNECT_SECONDS = 5.0
_PAGE = 250
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
# Refused before they were looked at, or given up on: neither says that nothing was done.
_UNSAID = frozenset({408, 429})
# PostgreSQL's words to a Nessie of a region, whose role may not move a ref. A standby's are none of them: what it was
# sent before, when it was none, may still show.
_ONLY_READS = re.compile(r"permission denied for (?:table|relation) \S*refs")
_LONGEST_SAID = 300


class RejectedError(HeadwaterError):
    """Nessie understood the request and did not do it."""

    def __init__(self, status: int, code: str, message: str, conflicts: tuple[Conflict, ...]) -> None:
        super().__init__(message, status=status, code=code)
        self.status = status
        self.code = code
        self.conflicts = conflicts

    @property
    def is_conflict(self) -> bool:
        """Whether somebody else was faster."""
        return self.status == httpx.codes.CONFLICT

    @property
    def is_absent(self) -> bool:
        """Whether a ref or a commit is not there."""
        return self.status == httpx.codes.NOT_FOUND


class LostAnswerError(HeadwaterError):
    """A change was sent, and nobody says what became of it."""


class _NoAnswerError(Exception):
    """What came back is no answer."""


class _OnlyReadsError(_NoAnswerError):
    """The server's database does not let it move a ref: it serves readers."""


def ref_path(name: str, at: str | None = None) -> str:
    """A ref in a path, at a hash of its history if one is named; without a name, the commit alone."""
    return quote(name, safe="") + (f"@{at}" if at is not None else "")


class NessieApi:
    """One Nessie server. Threads share it, and a forked child connects anew."""

    def __init__(
        self,
        url: str,
        *,
        retry: Retry,
        answer_seconds: float = 30.0,
        token: str | None = None,
        transport: httpx.BaseTransport | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._retry = retry
        self._metrics = metrics or Metrics()
        self._clients = PerProcess(partial(_make_client, self.url, answer_seconds, token, transport))
        # Nobody ends a lake; its connections end when nobody has it any more.
        weakref.finalize(self, _close, self._clients)

    def __repr__(self) -> str:
        return f"NessieApi({self.url})"

    def read(self, path: str, *, params: Mapping[str, str] | None = None, body: Json | None = None) -> Json:
        """Ask for something; asked again while no answer comes. With a body it is a question that is too long."""
        method = "GET" if body is None else "POST"
        try:
            return self._retry.call(lambda: self._ask(method, path, params, body), on=(httpx.HTTPError, _NoAnswerError))
        except (httpx.HTTPError, _NoAnswerError) as error:
            raise self._unavailable(error) from error

    def pages(self, path: str, of: str, *, params: Mapping[str, str] | None = None) -> Iterator[Any]:
        """Every item of a list that comes in pages."""
        token: str | None = None
        while True:
            asked = {**(params or {}), "max-records": str(_PAGE)} | ({"page-token": token} if token else {})
            answer = self.read(path, params=asked)
            yield from answer[of]
            token = answer.get("token") if answer.get("hasMore") else None
            if not token:
                return

    def change(self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: Json | None) -> Json:
        """Change something, once."""
        try:
            return self._ask(method, path, params, body)
        except _NEVER_SENT as error:
            raise self._unavailable(error) from error
        except _OnlyReadsError as error:
            raise RefusedError(
                f"{self.url} can only be read: its database lets it change nothing",
                hint="writers use the write endpoint, of the primary, in every region; this one is for `sync.catalog`",
                url=self.url,
            ) from error
        except (httpx.HTTPError, _NoAnswerError) as error:
            raise LostAnswerError(f"{self.url} did not say what became of it: {_reason(error)}") from error

    def _ask(self, method: str, path: str, params: Mapping[str, str] | None, body: Json | None) -> Json:
        began = self._retry.clock.monotonic()
        try:
            response = self._clients.get().request(method, f"{self.url}/{path}", params=params or None, json=body)
        finally:
            self._measure(operation_of(method, path), 1000 * (self._retry.clock.monotonic() - began))
        status = response.status_code
        if status == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
            raise RefusedError(
                f"{self.url} does not take so much in one request",
                hint="raise `quarkus.http.limits.max-body-size` of the server, which is 10M unless it says otherwise",
                url=self.url,
            )
        if status >= httpx.codes.INTERNAL_SERVER_ERROR or status in _UNSAID:
            kind = _OnlyReadsError if _ONLY_READS.search(response.text) else _NoAnswerError
            raise kind(f"status {status}: {_said(response)}")
        try:
            answer = response.json()
        except ValueError:
            if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
                answer = {"message": f"status {status}"}
            else:
                raise _NoAnswerError(f"status {status}, and no JSON") from None
        if not isinstance(answer, dict):
            raise _NoAnswerError(f"status {status}, and not what Nessie answers")
        if response.is_success:
            return answer
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise UsageError(
                f"{self.url} does not let us: {answer.get('message')}", hint="set `nessie.token`", url=self.url
            )
        raise RejectedError(status, str(answer.get("errorCode")), str(answer.get("message")), conflicts_of(answer))

    def _measure(self, operation: str, took_ms: float) -> None:
        self._metrics.observe(API_LATENCY, took_ms, operation=operation)
        if operation == COMMIT:
            self._metrics.observe(COMMIT_LATENCY, took_ms)

    def _unavailable(self, error: Exception) -> UnavailableError:
        return UnavailableError(
            f"no Nessie answers at {self.url}: {_reason(error)}", hint="is it up, and is the URL right?", url=self.url
        )


def _make_client(
    url: str, answer_seconds: float, token: str | None, transport: httpx.BaseTransport | None
) -> httpx.Client:
    headers = {"Nessie-Client-Spec": "2", "Accept": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    # A proxy of the environment is not for us: it may repeat what must not be repeated.
    return httpx.Client(
        headers=headers,
        timeout=httpx.Timeout(answer_seconds, connect=_CONNECT_SECONDS),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
        transport=transport,
        verify=url.startswith("https:"),  # reading the authorities of the machine takes longer than a commit
        trust_env=False,
    )


def _close(clients: PerProcess[httpx.Client]) -> None:
    for client in clients.made():
        client.close()


def _said(response: httpx.Response) -> str:
    """What the server says of its trouble, without the form around it."""
    try:
        answer = response.json()
    except ValueError:
        answer = None
    told = answer.get("message") if isinstance(answer, dict) else None
    return str(told or response.text)[:_LONGEST_SAID]


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
