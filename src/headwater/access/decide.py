"""The decisions of access, without any I/O."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from datetime import datetime, timedelta

from headwater.access.model import KeyedRequest, Step
from headwater.kernel.errors import UsageError
from headwater.kernel.ids import Ulid

SECRET_BYTES = 32
LONGEST_NAME = 100
LONGEST_KEY = 255
# Names beginning so are actors of the system's own.
RESERVED = "headwater:"

_TEXT = re.compile(r"hw_([0-7][0-9A-HJKMNP-TV-Z]{25})_([A-Za-z0-9_-]{43})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")
_KEY = re.compile(r"[\x21-\x7e]+")
# What the secret of a token that is not there is compared with, so that both take the same time.
NOBODY = "0" * 64


def spelled(token: Ulid, secret: bytes) -> str:
    """The token as its owner keeps it."""
    return f"hw_{token}_{base64.urlsafe_b64encode(secret).rstrip(b'=').decode()}"


def parsed(text: str) -> tuple[Ulid, str] | None:
    """The id and the secret that a token spells, or None."""
    found = _TEXT.fullmatch(text)
    return None if found is None else (Ulid(found[1]), found[2])


def digest_of(secret: str) -> str:
    """What is stored of a secret. It has 256 random bits, so that no slow hash is needed to hide it."""
    return hashlib.sha256(secret.encode()).hexdigest()


def secret_of(text: str) -> str:
    """The secret in a token that `spelled` has made."""
    found = parsed(text)
    assert found is not None
    return found[1]


def is_secret(secret: str, stored: str | None) -> bool:
    """Whether the secret is the one that was stored; in the same time whatever the answer is."""
    is_same = hmac.compare_digest(digest_of(secret), stored if stored is not None else NOBODY)
    return is_same and stored is not None


def check_name(name: str) -> str:
    """`name` itself when it may name a token, and so be the actor of commits."""
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a token",
            hint=f"letters, digits and . _ @ + -, at most {LONGEST_NAME}; it will be the actor of commits",
            name=name,
        )
    return name


def check_key(key: str) -> str:
    """`key` itself when it may be a request's key."""
    if not 0 < len(key) <= LONGEST_KEY or not _KEY.fullmatch(key):
        raise UsageError(
            "the Idempotency-Key cannot be used", hint=f"1 to {LONGEST_KEY} printable ASCII characters, without spaces"
        )
    return key


def next_step(found: KeyedRequest | None, digest: str) -> Step:
    """What to do about a request with this digest, when this is found under its key."""
    if found is None:
        return Step.RUN
    if found.digest != digest:
        return Step.MISMATCH
    return Step.LOOK if found.answer is None else Step.REPLAY


def may_be_running(found: KeyedRequest, now: datetime, skew: timedelta) -> bool:
    """Whether whoever began it may still commit: until its lease has passed on every clock."""
    return now < found.lease_until + skew
