"""What every route stands on: the lake, who may ask, and how much at a time."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from headwater.access import Caller, Requests, Role, TokenRefusedError, Tokens
from headwater.access.model import RoleRefusedError
from headwater.kernel.clock import Clock
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.metrics import Metrics
from headwater.kernel.randomness import Randomness
from headwater.kernel.settings import ServerSettings
from headwater.lake import Lake
from headwater.publish.model import Attempt
from headwater.server.limits import Flights, Gate, Stops

# Who asks where no tokens are needed.
ANONYMOUS = Caller("anonymous", "anonymous", Role.ADMIN)

# Not spelled as a header: what looks like one is taken for a secret, and blacked out.
_HOW = "`headwater token create LAKE NAME --role …` makes one; send it as bearer token in the header Authorization"
# What PyIceberg sends when it was given no token.
_NO_TOKEN = "Bearer None"  # noqa: S105
# What proxies add to a request that they pass on; whoever it is from may be anywhere.
_OF_PROXIES = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
_PORT = re.compile(r":[0-9]{1,5}$")


@dataclass(frozen=True)
class Serving:
    """One served lake. `is_loopback` says that only this machine can reach it."""

    lake: Lake
    settings: ServerSettings
    tokens: Tokens
    requests: Requests
    clock: Clock
    randomness: Randomness
    metrics: Metrics
    writes: Gate
    queries: Gate
    flights: Flights
    stops: Stops
    skew: timedelta
    sweep_every: timedelta
    temp_directory: Path | None = None
    is_loopback: bool = True

    def admit(self, headers: Mapping[str, str], needed: Role) -> Caller:
        """Who calls, if that is enough for what is asked; the names of headers are looked up in small letters.

        Without a token only while there never was one, on a loopback address, and by a name of this machine: a page in
        a browser that has made some other name point here is kept out. So is a page of any other origin, which a
        browser lets send what it may not read the answer to, and whoever a proxy on this machine sends.
        """
        authorization = headers.get("authorization")
        if authorization is not None and authorization != _NO_TOKEN:
            scheme, _, text = authorization.partition(" ")
            if scheme.lower() != "bearer" or not text.strip():
                raise TokenRefusedError("the header Authorization holds no bearer token", hint=_HOW)
            caller = self.tokens.caller(text.strip())
        elif self.is_loopback and is_of_this_machine(headers) and not self.tokens.has_any():
            caller = ANONYMOUS
        else:
            raise TokenRefusedError("a token is needed", hint=_HOW)
        if not caller.role.may_act_as(needed):
            raise RoleRefusedError(caller.actor, caller.role, needed)
        return caller

    def is_known(self, headers: Mapping[str, str]) -> bool:
        """Whether the request is of somebody who may ask for anything at all."""
        try:
            self.admit(headers, Role.READER)
        except TokenRefusedError:
            return False
        return True

    def attempt(self) -> Attempt:
        """A fresh attempt, which lands within the time that a write may take, or not at all."""
        deadline = self.clock.now() + timedelta(seconds=self.settings.write_seconds)
        return Attempt(self.new_operation(), deadline)

    def new_operation(self) -> Ulid:
        """A fresh identity."""
        return new_ulid(self.clock, self.randomness)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_of_this_machine(headers: Mapping[str, str]) -> bool:
    """Whether a request to a loopback address was made on this machine, and by no page of somebody else's."""
    host = headers.get("host", "")
    is_forwarded = any(name in headers for name in _OF_PROXIES)
    return is_local_name(host) and is_same_origin(headers.get("origin"), host) and not is_forwarded


def is_same_origin(origin: str | None, host: str) -> bool:
    """Whether a request comes from no page at all, or from one of this very server."""
    return origin is None or origin.partition("://")[2] == host


def is_local_name(host: str) -> bool:
    """Whether a Host header names this machine as itself."""
    name = _PORT.sub("", host)
    return is_loopback(name.removeprefix("[").removesuffix("]"))
