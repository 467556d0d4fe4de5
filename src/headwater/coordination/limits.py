"""What is refused before any server is asked, so that every backend refuses the same."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headwater.coordination.model import Absent, Compare, CreatedAt, LeasedBy, ModifiedAt, Operation, Put
from headwater.kernel.errors import UsageError

MAX_VALUE_BYTES = 1024 * 1024
MAX_KEY_BYTES = 1024
# etcd takes 128 operations and 1.5 MiB in a transaction; ours leave room for what we add to them.
MAX_OPERATIONS = 100
MAX_TRANSACTION_BYTES = MAX_VALUE_BYTES + 128 * 1024
# Beyond this a timestamp of expiry could overflow; a key that shall stay needs no lease.
MAX_TTL_SECONDS = 10 * 365 * 86400.0
MAX_NUMBER = 2**63 - 1


def check_key(key: str) -> None:
    """A key is 1 to 1024 bytes of UTF-8 without control characters."""
    if not key:
        raise UsageError("a key is empty", key=key)
    check_prefix(key)


def check_prefix(prefix: str) -> None:
    """A prefix is like a key, but may be empty: then it means every key."""
    if any(character < " " or "\x7f" <= character <= "\x9f" for character in prefix):
        raise UsageError(f"key {prefix!r} has control characters", key=prefix)
    try:
        size = len(prefix.encode())
    except UnicodeEncodeError:
        raise UsageError(f"key {prefix!r} is not valid Unicode", key=prefix) from None
    if size > MAX_KEY_BYTES:
        raise UsageError(f"key {prefix[:40]!r}… has {size} bytes; {MAX_KEY_BYTES} are allowed", key=prefix[:40])


def check_ttl(ttl_seconds: float) -> None:
    """A lease lives for a positive time."""
    if not (math.isfinite(ttl_seconds) and 0 < ttl_seconds <= MAX_TTL_SECONDS):
        raise UsageError(f"a lease cannot last {ttl_seconds} seconds", ttl_seconds=ttl_seconds)


def check_revision(revision: int) -> None:
    """Revisions count from 1; 0 is before everything."""
    if not 0 <= revision <= MAX_NUMBER:
        raise UsageError(f"{revision} is not a revision", revision=revision)


def check_lease(lease: int) -> None:
    """Leases count from 1."""
    if not 1 <= lease <= MAX_NUMBER:
        raise UsageError(f"{lease} is not a lease", lease=lease)


def check_holder(holder: str) -> None:
    """A holder is any text that can be written down."""
    try:
        size = len(holder.encode())
    except UnicodeEncodeError:
        raise UsageError(f"holder {holder!r} is not valid Unicode", holder=holder) from None
    if size > MAX_VALUE_BYTES:
        raise UsageError(f"holder {holder[:40]!r}… has {size} bytes; {MAX_VALUE_BYTES} are allowed", holder=holder[:40])


def check_transaction(compares: Sequence[Compare], operations: Sequence[Operation]) -> None:
    """Every key and value is allowed, none is written twice, and the whole is not too much."""
    for compare in compares:
        check_key(compare.key)
        _check_number(compare)
    written: set[str] = set()
    total = 0
    for operation in operations:
        check_key(operation.key)
        if operation.key in written:
            raise UsageError(f"key {operation.key} is written twice in one transaction", key=operation.key)
        written.add(operation.key)
        if isinstance(operation, Put):
            _check_number(operation)
            if not isinstance(operation.value, bytes):
                raise UsageError(f"the value of {operation.key} is not bytes", key=operation.key)
            size = len(operation.value)
            if size > MAX_VALUE_BYTES:
                raise UsageError(
                    f"the value of {operation.key} has {size} bytes; {MAX_VALUE_BYTES} are allowed", key=operation.key
                )
            total += size
    if len(compares) > MAX_OPERATIONS or len(operations) > MAX_OPERATIONS:
        raise UsageError(f"a transaction has at most {MAX_OPERATIONS} compares and {MAX_OPERATIONS} operations")
    if total > MAX_TRANSACTION_BYTES:
        raise UsageError(f"the values of a transaction have {total} bytes; {MAX_TRANSACTION_BYTES} are allowed")


def _check_number(about: Compare | Put) -> None:
    """0 is no revision and no lease; etcd would take it for "absent"."""
    match about:
        case Absent():
            return
        case ModifiedAt():
            number = about.mod_revision
        case CreatedAt():
            number = about.create_revision
        case LeasedBy():
            number = about.lease
        case Put():
            number = 1 if about.lease is None else about.lease
    if not 1 <= number <= MAX_NUMBER:
        raise UsageError(f"{number} is not a revision or lease for {about.key}", key=about.key)


def prefix_end(prefix: str) -> str | None:
    """The first string after all that start with `prefix`, in the order of code points (and so of UTF-8)."""
    for position in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[position])
        if code < 0x10FFFF:
            # Surrogates are no characters; nothing can sort there.
            return prefix[:position] + chr(0xE000 if code == 0xD7FF else code + 1)
    return None
