"""One plain request to a server on loopback: no proxy, no pool, no redirect."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass

_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True)
class Answer:
    """Status and body."""

    status: int
    body: bytes


def request(method: str, port: int, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
    """Send one request; an `OSError` when nobody listens, an `HTTPException` when no HTTP comes back."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request(method, path, body=body or None, headers=dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, response.read())
    finally:
        connection.close()


def get(port: int, path: str) -> Answer:
    """A GET without headers."""
    return request("GET", port, path)
