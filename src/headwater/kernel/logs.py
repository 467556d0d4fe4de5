"""Structured logs, as text for people or JSON for machines, that never print a secret.

A message is a constant sentence; what it is about travels as fields:

    log.warning("stale write refused", namespace="manifest", id=7, boundary=9)

Fields whose name speaks of a secret, and passwords inside URLs, are replaced before anything is
formatted, tracebacks included.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO

HIDDEN = "***"

_NAMES = (
    r"secret|password|passphrase|passwd|pwd|token|credential|authorization|signature|"
    r"(?:access|account|private|api)[_-]?key"
)
_SECRET_NAME = re.compile(_NAMES, re.I)
# Whatever stands before the @: a user and a password, which may hold slashes and more of them, or a bare token.
_URL_CREDENTIALS = re.compile(r"([a-z][a-z0-9+.-]*://)(?:[^\s/@:'\"]*:[^\s'\"]*|[^\s/@:'\"]+)@", re.I)
# name = value, "name": "value", Name: Bearer value; not /etc/passwd: and the like.
_ASSIGNED = re.compile(
    rf"""((?<![\w/])[\w.-]*(?:{_NAMES})[\w-]*["']?\s*[=:]\s*|(?<=[?&])sig=)
        (?:(?:Bearer|Basic)\s+)?("[^"]*"|'[^']*'|[^\s,;&)}}\]]+)""",
    re.I | re.X,
)
_ELEMENT = re.compile(r"(<[\w-]*(?:token|secret|signature|accesskey)[\w-]*>)[^<]*", re.I)


def scrub(text: str) -> str:
    """`text` without credentials in URLs, values of secret names, and XML elements that hold secrets."""
    without_urls = _URL_CREDENTIALS.sub(rf"\1{HIDDEN}@", text)
    return _ELEMENT.sub(rf"\1{HIDDEN}", _ASSIGNED.sub(rf"\1{HIDDEN}", without_urls))


def scrub_value(value: object, name: str = "") -> object:
    """`value` as plain JSON, scrubbed all the way down; under a secret name nothing is shown."""
    if name and _SECRET_NAME.search(name):
        return HIDDEN
    if isinstance(value, Mapping):
        return {str(key): scrub_value(each, str(key)) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [scrub_value(each) for each in value]
    return value if isinstance(value, (int, float, bool, type(None))) else scrub(str(value))


class Log:
    """A named logger whose calls take fields."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"headwater.{name}")

    def debug(self, message: str, **fields: object) -> None:
        """For whoever reads the protocol step by step."""
        self._logger.debug(message, extra={"fields": fields})

    def info(self, message: str, **fields: object) -> None:
        """What an operator expects to see."""
        self._logger.info(message, extra={"fields": fields})

    def warning(self, message: str, **fields: object) -> None:
        """What an operator should look at."""
        self._logger.warning(message, extra={"fields": fields})

    def error(self, message: str, *, cause: BaseException | None = None, **fields: object) -> None:
        """What failed, with its traceback when a cause is given."""
        self._logger.error(message, extra={"fields": fields}, exc_info=cause)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = getattr(record, "fields", {})
    return {name: scrub_value(value, name) for name, value in fields.items()}


def _when(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class TextFormatter(logging.Formatter):
    """One line: time, level, logger, message, then `name=value` pairs."""

    def format(self, record: logging.LogRecord) -> str:
        """Format and scrub."""
        pairs = "".join(f" {name}={value}" for name, value in _fields(record).items())
        line = f"{_when(record)} {record.levelname:7} {record.name}: {record.getMessage()}{pairs}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return scrub(line)


class JsonFormatter(logging.Formatter):
    """One JSON object a line; fields beside `time`, `level`, `logger` and `message`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format and scrub."""
        entry: dict[str, object] = {
            **_fields(record),
            "time": _when(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": scrub(record.getMessage()),
        }
        if record.exc_info:
            entry["traceback"] = scrub(self.formatException(record.exc_info))
        return json.dumps(entry)


def configure(log_format: str, level: str, stream: TextIO | None = None) -> None:
    """Send Headwater's logs to `stream` (standard error by default) in the chosen format."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logger = logging.getLogger("headwater")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())
