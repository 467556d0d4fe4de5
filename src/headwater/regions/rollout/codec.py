"""The durable bytes of a generation and of the pointer, as docs/formats.md describes them."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from headwater.kernel.errors import CorruptError, UsageError
from headwater.kernel.ids import parse_ulid
from headwater.regions.errors import RegistryInvalidError
from headwater.regions.registry.codec import canonical_bytes, from_json, to_values
from headwater.regions.rollout.model import FIRST_GENERATION, Generation, Link, Pointer

_FORMAT = 1
_HINT = "publish the registry again from its file"
_POINTER_HINT = "delete it, and publish the registry again from its file: numbers go on"


def encode_generation(generation: Generation) -> bytes:
    """Canonical JSON, sealed by the digest of the rest of it."""
    link = generation.previous
    previous = None if link is None else {"generation": link.generation, "checksum": link.checksum}
    return _sealed(
        {
            "format": _FORMAT,
            "generation": generation.number,
            "writer": generation.writer,
            "actor": generation.actor,
            "published_at": _spelled(generation.published_at),
            "valid_from": _spelled(generation.valid_from),
            "previous": previous,
            "restores": generation.restores,
            "registry": to_values(generation.registry),
        }
    )


def decode_generation(data: bytes, path: str) -> Generation:
    """What the bytes say; damage, a newer format and rules that contradict each other are a `CorruptError`."""
    values = _opened(data, path, _HINT)
    try:
        previous = values["previous"]
        return Generation(
            _number(values["generation"]),
            from_json(values["registry"], path),
            parse_ulid(values["writer"]),
            str(values["actor"]),
            _utc(values["published_at"]),
            _utc(values["valid_from"]),
            None if previous is None else _link(previous),
            None if values["restores"] is None else _number(values["restores"]),
        )
    except RegistryInvalidError as error:
        raise CorruptError(f"{path} holds rules that do not hold: {error.message}", path=path) from error
    except (KeyError, TypeError, ValueError, UsageError):
        raise _damaged(path, _HINT) from None


def encode_pointer(pointer: Pointer) -> bytes:
    """The same for the pointer."""
    return _sealed(
        {
            "format": _FORMAT,
            "generation": pointer.link.generation,
            "checksum": pointer.link.checksum,
            "valid_from": _spelled(pointer.valid_from),
        }
    )


def decode_pointer(data: bytes, path: str) -> Pointer:
    """The pointer, or a `CorruptError`."""
    values = _opened(data, path, _POINTER_HINT)
    try:
        return Pointer(_link(values), _utc(values["valid_from"]))
    except (KeyError, TypeError, ValueError):
        raise _damaged(path, _POINTER_HINT) from None


def checksum_of(data: bytes) -> str:
    """The digest by which a link names a generation."""
    return hashlib.sha256(data).hexdigest()


def _sealed(values: dict[str, object]) -> bytes:
    return canonical_bytes({**values, "sha256": _seal(values)})


def _opened(data: bytes, path: str, hint: str) -> dict[str, Any]:
    try:
        values = json.loads(data)
        version = values["format"]
        if isinstance(version, int) and version > _FORMAT:
            raise CorruptError(
                f"{path} has format {version}, newer than {_FORMAT}", hint="upgrade headwater", path=path
            )
        sound = version == _FORMAT and values.pop("sha256") == _seal(values)
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise _damaged(path, hint)
    assert isinstance(values, dict)
    return values


def _seal(values: dict[str, object]) -> str:
    return hashlib.sha256(canonical_bytes(values)).hexdigest()


def _damaged(path: str, hint: str) -> CorruptError:
    return CorruptError(f"{path} is damaged, or not of the registry", hint=hint, path=path)


def _link(values: dict[str, Any]) -> Link:
    return Link(_number(values["generation"]), str(values["checksum"]))


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < FIRST_GENERATION:
        raise ValueError(value)
    return value


def _spelled(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _utc(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    return moment.astimezone(UTC)
