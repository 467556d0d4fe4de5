"""etcd's JSON gateway: one request, and what each way of failing means.

The gateway speaks protobuf's JSON: bytes are base64, 64-bit numbers are strings, and what is zero or false is
left out.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from headwater.database import PerProcess
from headwater.kernel.errors import HeadwaterError, OutcomeUnknownError, UnavailableError, UsageError

_SPELLING = "etcd+http://host:port[,host:port…][/namespace]"
_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
# Before these the request was not sent, so that another member may be asked.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

T = TypeVar("T")


class RejectedError(HeadwaterError):
    """etcd understood the request and did not do it. `code` is gRPC's."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code=code)
        self.code = code


def parse_endpoints(url: str) -> tuple[tuple[str, ...], str]:
    """The base URLs of the members, and the namespace under which our keys live."""
    parts = urlsplit(url.removeprefix("etcd+"))
    if "@" in parts.netloc:
        raise UsageError("a name and password for etcd are not supported", hint=_SPELLING)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise UsageError(f"{url!r} is not an etcd URL", hint=_SPELLING)
    members = tuple(f"{parts.scheme}://{member}" for member in parts.netloc.split(","))
    for member in members:
        try:
            named = bool(urlsplit(member).hostname) and urlsplit(member).port != 0
        except ValueError:  # the port is no number, or too large for one
            named = False
        if not named:
            raise UsageError(f"{url!r} names no host and port", hint=_SPELLING)
    return members, parts.path.strip("/") or "headwater"


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
        """Send one request.

        With `operation` it is a change that must not be repeated blindly: whatever leaves open if it happened is
        an `OutcomeUnknownError`. Without, every failure to answer is an `UnavailableError`.
        """

        def lost(reason: str) -> HeadwaterError:
            message = f"etcd at {self._members[self._preferred]} did not answer: {reason}"
            if operation is None:
                return UnavailableError(message, path=path)
            return OutcomeUnknownError(
                message, operation=operation, hint="ask for its outcome, or read its keys again", path=path
            )

        try:
            response = self._first_that_connects(lambda base, client: client.post(base + path, json=body))
        except httpx.HTTPError as error:
            raise lost(_reason(error)) from error
        try:
            answer = response.json()
        except ValueError as error:
            raise lost(f"status {response.status_code}, not JSON") from error
        if response.status_code == httpx.codes.OK and isinstance(answer, dict):
            return answer
        message, code = _explanation(answer)
        # 429 is said before the request is proposed; of a 5xx (timeout, leader changed) nobody knows.
        if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
            raise UnavailableError(f"etcd refuses work: {message}", path=path)
        if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise lost(message)
        raise RejectedError(message, code)

    @contextmanager
    def stream(self, path: str, body: Mapping[str, object], quiet_seconds: float) -> Iterator[Iterator[dict[str, Any]]]:
        """An answer that goes on: its messages, which end when none came for `quiet_seconds`."""
        timeout = httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS, read=quiet_seconds)

        def send(base: str, client: httpx.Client) -> httpx.Response:
            request = client.build_request("POST", base + path, json=body, timeout=timeout)
            return client.send(request, stream=True)

        try:
            response = self._first_that_connects(send)
        except httpx.HTTPError as error:
            raise UnavailableError(f"etcd did not answer: {_reason(error)}", path=path) from error
        try:
            yield _messages(response, path)
        finally:
            response.close()

    def close(self) -> None:
        """Close this process's connections. Afterwards the gateway refuses to be used."""
        self._closed = True
        for client in self._clients.made():
            client.close()

    def _first_that_connects(self, send: Callable[[str, httpx.Client], T]) -> T:
        if self._closed:
            raise UsageError(f"{self!r} is closed")
        client = self._clients.get()
        for _ in self._members[1:]:
            preferred = self._preferred
            try:
                return send(self._members[preferred], client)
            except _NEVER_SENT:
                self._preferred = (preferred + 1) % len(self._members)
        try:
            return send(self._members[self._preferred], client)
        except _NEVER_SENT as error:
            where = ", ".join(self._members)
            raise UnavailableError(f"no etcd answers at {where}: {_reason(error)}", endpoints=where) from error

    def _make_client(self) -> httpx.Client:
        # Every watch keeps a connection, so that their number has no bound. A proxy of the environment is not for us.
        return httpx.Client(
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
            trust_env=False,
        )


def _messages(response: httpx.Response, path: str) -> Iterator[dict[str, Any]]:
    try:
        for line in response.iter_lines():
            message = json.loads(line)
            if "error" in message:
                raise UnavailableError(f"etcd ended the stream: {_explanation(message)[0]}", path=path)
            yield message["result"]
    except httpx.ReadTimeout:
        return
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise UnavailableError(f"the stream from etcd broke: {_reason(error)}", path=path) from error
    raise UnavailableError("etcd closed the stream", path=path)


def _explanation(answer: object) -> tuple[str, int]:
    if isinstance(answer, dict):
        inner = answer.get("error")
        detail = inner if isinstance(inner, dict) else answer
        code = detail.get("code") or detail.get("grpc_code") or 0
        return str(detail.get("message") or inner or answer), int(code)
    return str(answer), 0


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
