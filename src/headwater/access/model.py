"""What access talks about: roles, tokens, who calls, and requests that carry a key."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from headwater.kernel.errors import RefusedError
from headwater.kernel.ids import Ulid


class Role(enum.StrEnum):
    """What a token is good for. Each role may do what those before it may."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"

    def may_act_as(self, needed: Role) -> bool:
        """Whether this role is enough where `needed` is asked for."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True)
class Token:
    """A token as it is stored. Its secret is not: only a digest of it, which is never shown."""

    id: Ulid
    name: str
    role: Role
    created_at: datetime
    revoked_at: datetime | None = None


@dataclass(frozen=True)
class Caller:
    """Who calls: the actor of the commits that come of it, and what it may do."""

    id: str
    actor: str
    role: Role


@dataclass(frozen=True)
class KeyedRequest:
    """A request that carries a key of its caller's choice, under which it is carried out once.

    `operation` is the identity under which its change lands, or landed; `lease_until` the moment after which whoever
    began it does not commit any more. `answer` is what was answered, as JSON, once it was.
    """

    caller: str
    key: str
    digest: str
    branch: str
    operation: Ulid
    lease_until: datetime
    answer: str | None = None


class Step(enum.StrEnum):
    """What is to be done about a request that carries a key."""

    RUN = "run"
    REPLAY = "replay"
    MISMATCH = "mismatch"
    LOOK = "look"


class TokenRefusedError(RefusedError):
    """No token was given where one is needed, or none that is valid."""


class RoleRefusedError(RefusedError):
    """The token is valid, and its role does not reach."""

    def __init__(self, actor: str, role: Role, needed: Role) -> None:
        super().__init__(
            f"{actor} has the role {role}, and this needs the role {needed}",
            hint=f"use another token: `headwater token create LAKE NAME --role {needed}` makes one",
            role=str(role),
            needed=str(needed),
        )
