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
from headwater.sequence.model import FIRST_ID, ID_DIGITS, LAST_ID, Namespace, Pin, PinRecord

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
    return _id_in(name, namespace.suffix, path)


def id_of_record(path: str, namespace: Namespace) -> int:
    """The id whose pins this object of the pins' folder holds."""
    return _id_in(path.removeprefix(namespace.pins_folder + "/"), ".json", path)


def _id_in(name: str, suffix: str, path: str) -> int:
    digits = name.removesuffix(suffix)
    if name.endswith(suffix) and len(digits) == ID_DIGITS and digits.isascii() and digits.isdecimal():
        number = int(digits)
        if FIRST_ID <= number <= LAST_ID:
            return number
    raise CorruptError(
        f"{path} does not belong here: its name is not an id",
        hint=f"objects here are named by {ID_DIGITS} digits and {suffix}; move this one away",
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
    """A header line, then the payload: `headwater-sequenced 1 <writer> <previous|-> <length> <sha256>`.

    The digest covers the header in front of it and the payload.
    """

    def encode(self, body: Body) -> bytes:
        """Header and payload."""
        header = f"{_MAGIC} {_VERSION} {body.writer} {body.previous or '-'} {len(body.payload)}"
        return f"{header} {_digest(header.encode(), body.payload)}\n".encode("ascii") + body.payload

    def decode(self, data: bytes, path: str) -> Body:
        """Checked for length and digest."""
        line, _, payload = data.partition(b"\n")
        header, _, digest = line.rpartition(b" ")
        try:
            magic, version, writer, previous, length = header.decode("ascii").split(" ")
            if magic == _MAGIC and version.isdecimal() and int(version) > _VERSION:
                raise CorruptError(
                    f"{path} has format version {version}, newer than {_VERSION}", hint="upgrade headwater", path=path
                )
            body = Body(parse_ulid(writer), None if previous == "-" else parse_ulid(previous), payload)
            sound = (magic, version, length) == (_MAGIC, str(_VERSION), str(len(payload)))
        except (ValueError, UsageError):
            raise CorruptError(f"{path} is not a sequenced object, or was cut short", path=path) from None
        if not sound or digest.decode("ascii", "replace") != _digest(header, payload):
            raise CorruptError(f"{path} is truncated or damaged: {len(payload)} bytes follow its header", path=path)
        return body


def _digest(header: bytes, payload: bytes) -> str:
    return hashlib.sha256(header + b"\n" + payload).hexdigest()


def pin_record_path(namespace: Namespace, number: int) -> str:
    """Where the pins of one object are kept."""
    return f"{namespace.pins_folder}/{number:0{ID_DIGITS}d}.json"


def encode_pin_record(record: PinRecord) -> bytes:
    """One JSON object, sealed by the digest of the rest of it."""
    pins = [
        {
            "pin": pin.pin,
            "holder": pin.holder,
            "granted": pin.granted,
            "expires_at": pin.expires_at.astimezone(UTC).isoformat(),
        }
        for pin in record.pins
    ]
    values = {
        "format": _PIN_FORMAT,
        "id": record.id,
        "writer": record.writer,
        "attempt": record.attempt,
        "pins": pins,
    }
    return json.dumps({**values, "sha256": _seal(values)}).encode()


def decode_pin_record(data: bytes, path: str) -> PinRecord:
    """The record; one that cannot be read is an error, because a collector must not guess."""
    try:
        values = json.loads(data)
        if values["format"] > _PIN_FORMAT:
            raise CorruptError(f"{path} holds pins of a newer format", hint="upgrade headwater", path=path)
        sound = values.pop("sha256") == _seal(values)
        pins = tuple(
            Pin(parse_ulid(each["pin"]), str(each["holder"]), each["granted"] is True, _utc(each["expires_at"]))
            for each in values["pins"]
        )
        record = PinRecord(int(values["id"]), parse_ulid(values["writer"]), pins, attempt=parse_ulid(values["attempt"]))
    except (ValueError, KeyError, TypeError, AttributeError, UsageError):
        sound = False
    if not sound:
        raise CorruptError(
            f"{path} does not hold pins", hint="remove it once nobody reads the object that it names", path=path
        )
    return record


def _seal(values: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _utc(text: str) -> datetime:
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError(text)
    return when.astimezone(UTC)
