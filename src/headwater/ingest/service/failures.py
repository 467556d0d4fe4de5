"""What a client hears of an error.

INVALID_ARGUMENT and FAILED_PRECONDITION: nothing was done, and the same request will be refused again.
RESOURCE_EXHAUSTED: nothing was done; send it later. UNAVAILABLE, INTERNAL, ABORTED, CANCELLED: it may have been begun;
sending the same request again makes it whole.
"""

from __future__ import annotations

import json

import grpc

from headwater.ingest.buffer.model import BufferFullError
from headwater.ingest.service.gate import TooManyCallsError
from headwater.kernel.errors import ConflictError, HeadwaterError, RefusedError, UnavailableError, UsageError


class CallerGoneError(HeadwaterError):
    """Nobody waits for the answer any more: the caller has cancelled, or its deadline has passed."""


# gRPC's clients take 8 kB of details and metadata together, and say RESOURCE_EXHAUSTED when there are more.
_DETAILS_BYTES, _FIELD_BYTES, _FIELDS_BYTES = 1500, 1000, 4000

_CODES: tuple[tuple[type[HeadwaterError], grpc.StatusCode], ...] = (
    (UsageError, grpc.StatusCode.INVALID_ARGUMENT),
    (RefusedError, grpc.StatusCode.FAILED_PRECONDITION),
    (BufferFullError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (TooManyCallsError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (CallerGoneError, grpc.StatusCode.CANCELLED),
    (UnavailableError, grpc.StatusCode.UNAVAILABLE),
    (ConflictError, grpc.StatusCode.ABORTED),
)


def code_of(error: BaseException) -> grpc.StatusCode:
    """The status of an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)


def details_of(error: BaseException) -> str:
    """What is said of it. Of what nobody foresaw only that it happened: its text may hold rows."""
    if isinstance(error, HeadwaterError):
        return _cut(str(error), _DETAILS_BYTES)
    return f"the node met an error that it did not expect ({type(error).__name__}); its log says more"


def trailer_of(error: BaseException) -> tuple[tuple[str, str], ...]:
    """The error for machines: the metadata `headwater-error`. Long texts are cut, and too many fields left out."""
    if not isinstance(error, HeadwaterError):
        return ()
    said: dict[str, object] = {}
    for name, value in error.as_json().items():
        said[name] = _cut(value, _FIELD_BYTES) if isinstance(value, str) else value
        if len(_text(said)) > _FIELDS_BYTES:
            del said[name]
    return (("headwater-error", _text(said)),)


def _cut(text: str, most_bytes: int) -> str:
    """A text that is short enough on the wire, where a character may be six bytes and more."""
    if len(_text(text)) <= most_bytes:
        return text
    while (size := len(_text(text))) > most_bytes - len(_text("…")):
        text = text[: len(text) * most_bytes // (size + len(_text("…")))]
    return f"{text}…"


def _text(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=True)
