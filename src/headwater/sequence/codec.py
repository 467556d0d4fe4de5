"""The durable bytes of the sequence protocol, as docs/formats.md describes them."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from headwater.kernel.errors import CorruptError, UsageError
from headwater.kernel.ids import Ulid, parse_ulid
from headwater.sequence.model import FIRST_ID, ID_DIGITS, LAST_ID, Namespace, Pin

_BOUNDARY = re.compile(rb"0|[1-9][0-9]{0,19}")
_MAGIC = "headwater-sequenced"
_VERSION = 1
_PIN_FORMAT = 1


def encode_boundary(value: int) -> bytes:
    """An ASCII u64 and nothing else."""
    if not 0 <= value <= LAST_ID:
        raise UsageError(f"a boundary cannot be {value}", hint=f"0 to {LAST_ID}", boundary=value)
    return str(value).encode("ascii")


def decode_boundary(data: bytes, path: str) -> int:
    """The boundary, or an error that names the file."""
    if not _BOUNDARY.fullmatch(data) or int(data) > LAST_ID:
        shown = data[:40]
        raise CorruptError(
            f"{path} is not a boundary: it holds {shown!r}",
            hint="a boundary is one ASCII number of at most 64 bits, without a line end",
            path=path,
        )
    return int(data)


def id_of(path: str, namespace: Namespace) -> int | None:
    """The id of an object in the namespace's folder; None for what belongs to others in a shared folder."""
    name = path.removeprefix(namespace.folder + "/")
    if namespace.shared_folder and ("/" in name or not name.endswith(namespace.suffix)):
        return None
    digits = name.removesuffix(namespace.suffix)
    if name.endswith(namespace.suffix) and len(digits) == ID_DIGITS and digits.isascii() and digits.isdecimal():
        number = int(digits)
        if FIRST_ID <= number <= LAST_ID:
            return number
    raise CorruptError(
        f"{path} does not belong into a sequence: its name is not an id",
        hint=f"objects here are named by {ID_DIGITS} digits and {namespace.suffix}; move this one away",
        path=path,
    )


@dataclass(frozen=True)
class Body:
    """What an object of the history holds."""

    writer: Ulid
    previous: Ulid | None
    payload: bytes


class BodyCodec(Protocol):
    """How an object carries its writer. Formats that are not ours (Iceberg's metadata) bring their own."""

    def encode(self, body: Body) -> bytes:
        """The object's bytes."""
        ...

    def decode(self, data: bytes, path: str) -> Body:
        """What the bytes say, or a `CorruptError` that names the path."""
        ...


class EnvelopeCodec:
    """A header line, then the payload: `headwater-sequenced 1 <writer> <previous|-> <length> <sha256>`."""

    def encode(self, body: Body) -> bytes:
        """Header and payload."""
        digest = hashlib.sha256(body.payload).hexdigest()
        header = f"{_MAGIC} {_VERSION} {body.writer} {body.previous or '-'} {len(body.payload)} {digest}\n"
        return header.encode("ascii") + body.payload

    def decode(self, data: bytes, path: str) -> Body:
        """Checked for length and digest."""
        header, newline, payload = data.partition(b"\n")
        try:
            magic, version, *rest = header.decode("ascii").split(" ")
            if magic != _MAGIC or not newline:
                raise CorruptError(f"{path} is not a sequenced object, or was cut short", path=path)
            if int(version) > _VERSION:
                raise CorruptError(
                    f"{path} has format version {version}, newer than {_VERSION}", hint="upgrade headwater", path=path
                )
            writer, previous, length, digest = rest
            body = Body(parse_ulid(writer), None if previous == "-" else parse_ulid(previous), payload)
            complete = len(payload) == int(length) and hashlib.sha256(payload).hexdigest() == digest
        except (UnicodeDecodeError, ValueError, UsageError):
            raise CorruptError(f"{path} has a damaged header", path=path) from None
        if not complete:
            raise CorruptError(f"{path} is truncated or damaged: {len(payload)} bytes follow its header", path=path)
        return body


def pin_path(namespace: Namespace, number: int, pin: Ulid) -> str:
    """Where a pin is kept; the id comes first, so that the pins of one object are found by a prefix."""
    return f"{namespace.pins_folder}/{number:0{ID_DIGITS}d}/{pin}.json"


def encode_pin(pin: Pin) -> bytes:
    """One JSON object."""
    return json.dumps(
        {
            "format": _PIN_FORMAT,
            "pin": pin.pin,
            "id": pin.id,
            "writer": pin.writer,
            "holder": pin.holder,
            "granted": pin.granted,
            "expires_at": pin.expires_at.astimezone(UTC).isoformat(),
        }
    ).encode()


def decode_pin(data: bytes, path: str) -> Pin:
    """The pin; one that cannot be read is an error, because a collector must not guess."""
    try:
        values = json.loads(data)
        if values["format"] > _PIN_FORMAT:
            raise CorruptError(f"{path} is a pin of a newer format", hint="upgrade headwater", path=path)
        expires_at = datetime.fromisoformat(values["expires_at"])
        pin = Pin(
            parse_ulid(values["pin"]),
            values["id"],
            parse_ulid(values["writer"]),
            str(values["holder"]),
            values["granted"],
            expires_at,
        )
        sound = expires_at.tzinfo is not None and isinstance(pin.granted, bool) and type(pin.id) is int
    except (ValueError, KeyError, TypeError, UsageError):
        sound = False
    if not sound:
        raise CorruptError(f"{path} is not a pin", hint="remove it once nobody reads its object", path=path)
    return pin
