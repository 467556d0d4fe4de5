"""etcd's JSON gateway: one request, and what each way of failing means.

The gateway speaks protobuf's JSON: bytes are base64, 64-bit numbers are strings, and what is zero or false is
left out.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from headwater.coordination.limits import check_prefix
from headwater.kernel.errors import HeadwaterError, OutcomeUnknownError, UnavailableError, UsageError
from headwater.kernel.per_process import PerProcess

ETCD_SPELLING = "etcd+http://host:port[,host:port…][/namespace]"
_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
# Before these the request was not sent, so that another member may be asked.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
# gRPC's invalid argument, not found, already exists, permission denied, failed precondition, out of range,
# unimplemented, unauthenticated. After any other (cancelled, deadline exceeded, leader changed, no space) the
# request may have been proposed already.
_PROVES_REJECTION = frozenset({3, 5, 6, 7, 9, 11, 12, 16})


class RejectedError(HeadwaterError):
    """etcd understood the request and did not do it. `code` is gRPC's."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code=code)
        self.code = code


class _LostError(Exception):
    """A member did not say what became of the request."""


def parse_endpoints(url: str) -> tuple[tuple[str, ...], str]:
    """The base URLs of the members, and the namespace under which our keys live."""
    # Whatever is wrong with the URL may be part of a password, so that messages tell no more than its scheme.
    shown = f"the etcd URL {url.partition('://')[0]}://…"
    if "@" in url:
        raise UsageError(f"{shown} has a name and password, which are not supported", hint=ETCD_SPELLING)
    try:
        parts = urlsplit(url.removeprefix("etcd+"))
    except ValueError:
        raise UsageError(f"{shown} cannot be read", hint=ETCD_SPELLING) from None
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise UsageError(f"{shown} has more or less than hosts and a namespace", hint=ETCD_SPELLING)
    members = tuple(f"{parts.scheme}://{member}" for member in parts.netloc.split(","))
    for member in members:
        try:
            named = bool(urlsplit(member).hostname) and urlsplit(member).port != 0
        except ValueError:  # the port is no number, or too large for one
            named = False
        if not named:
            raise UsageError(f"{shown} names no host and port", hint=ETCD_SPELLING)
    namespace = parts.path.strip("/") or "headwater"
    check_prefix(namespace)
    if not {"k", "o"}.isdisjoint(namespace.split("/")):
        # Its keys would be keys or records of another namespace.
        raise UsageError(f"{shown} has a namespace with a part k or o, which are ours", hint=ETCD_SPELLING)
    return members, namespace


def encode(value: str | bytes) -> str:
    """Bytes as the gateway wants them."""
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def decode(value: str) -> bytes:
    """Bytes as the gateway gives them."""
    return base64.b64decode(value)


class EtcdGateway:
    """The members of one etcd cluster. Threads share it, and a forked child connects anew."""

    def __init__(self, members: tuple[str, ...]) -> None:
        self._members = members
        self._preferred = 0
        self._clients = PerProcess(self._make_client)
        self._closed = False

    def __repr__(self) -> str:
        return f"EtcdGateway({','.join(self._members)})"

    def call(self, path: str, body: Mapping[str, object], *, operation: str | None = None) -> dict[str, Any]:
        """Send one request, and to the next member what a member did not answer.

        With `operation` it is a change that must not be repeated blindly: whatever leaves open if it happened is
        an `OutcomeUnknownError`. Without, the request may arrive twice, and that nobody answers is an
        `UnavailableError`. `RejectedError`: nothing happened.
        """
        last: Exception | None = None
        for number in self._in_turn():
            try:
                return self._ask(self._members[number], path, body)
            except _NEVER_SENT as error:
                last = error
                self._pass_over(number)
            except (httpx.HTTPError, _LostError) as error:
                last = error
                self._pass_over(number)
                if operation is not None:
                    message = f"etcd at {self._members[number]} did not answer: {_reason(error)}"
                    hint = "ask for its outcome, or read its keys again"
                    raise OutcomeUnknownError(message, operation=operation, hint=hint, path=path) from error
        where = ", ".join(self._members)
        raise UnavailableError(f"no etcd answers at {where}: {_reason(last)}", endpoints=where, path=path) from last

    @contextmanager
    def stream(self, path: str, body: Mapping[str, object], quiet_seconds: float) -> Iterator[Iterator[dict[str, Any]]]:
        """An answer that goes on: its messages, which end when none came for `quiet_seconds`."""
        timeout = httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS, read=quiet_seconds)

        def send(base: str, client: httpx.Client) -> httpx.Response:
            request = client.build_request("POST", base + path, json=body, timeout=timeout)
            return client.send(request, stream=True)

        number, response = self._first_that_connects(send, path)
        try:
            yield self._messages(number, response, path)
        finally:
            response.close()

    def close(self) -> None:
        """Close this process's connections. Afterwards the gateway refuses to be used."""
        self._closed = True
        for client in self._clients.made():
            client.close()

    def _ask(self, base: str, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        response = self._clients.get().post(base + path, json=body)
        try:
            answer = response.json()
        except ValueError as error:
            raise _LostError(f"status {response.status_code}, not JSON") from error
        if response.status_code == httpx.codes.OK and isinstance(answer, dict):
            if _has_header(answer):
                return answer
            raise _LostError("status 200, but not in the way of etcd")
        message, code = _explanation(answer)
        if code in _PROVES_REJECTION:
            raise RejectedError(message, code)
        raise _LostError(message)

    def _first_that_connects(
        self, send: Callable[[str, httpx.Client], httpx.Response], path: str
    ) -> tuple[int, httpx.Response]:
        last: Exception | None = None
        for number in self._in_turn():
            try:
                return number, send(self._members[number], self._clients.get())
            except httpx.HTTPError as error:
                last = error
                self._pass_over(number)
        where = ", ".join(self._members)
        raise UnavailableError(f"no etcd answers at {where}: {_reason(last)}", endpoints=where, path=path) from last

    def _messages(self, number: int, response: httpx.Response, path: str) -> Iterator[dict[str, Any]]:
        try:
            for line in response.iter_lines():
                message = json.loads(line)
                if "error" in message:
                    self._pass_over(number)
                    raise UnavailableError(f"etcd ended the stream: {_explanation(message)[0]}", path=path)
                yield dict(**message["result"])  # a TypeError, if it is no object
        except httpx.ReadTimeout:
            return
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            self._pass_over(number)
            raise UnavailableError(f"the stream from etcd broke: {_reason(error)}", path=path) from error
        self._pass_over(number)
        raise UnavailableError("etcd closed the stream", path=path)

    def _in_turn(self) -> Iterator[int]:
        """Every member once, the preferred one first."""
        if self._closed:
            raise UsageError(f"{self!r} is closed")
        first = self._preferred
        return ((first + step) % len(self._members) for step in range(len(self._members)))

    def _pass_over(self, number: int) -> None:
        """Prefer the next member, unless another thread already does."""
        if self._preferred == number:
            self._preferred = (number + 1) % len(self._members)

    def _make_client(self) -> httpx.Client:
        # Every watch keeps a connection, so that their number has no bound. A proxy of the environment is not for us.
        return httpx.Client(
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
            trust_env=False,
        )


def _has_header(answer: dict[str, Any]) -> bool:
    """Every answer of etcd carries the revision that it is from."""
    inner = answer.get("result", answer)
    header = inner.get("header") if isinstance(inner, dict) else None
    return isinstance(header, dict) and str(header.get("revision", "")).isdecimal()


def _explanation(answer: object) -> tuple[str, int]:
    if isinstance(answer, dict):
        inner = answer.get("error")
        detail = inner if isinstance(inner, dict) else answer
        code = detail.get("code") or detail.get("grpc_code") or 0
        return str(detail.get("message") or inner or answer), code if isinstance(code, int) else 0
    return str(answer), 0


def _reason(error: Exception | None) -> str:
    return str(error) or type(error).__name__
