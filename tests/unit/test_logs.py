"""Structured logs that never print a secret."""

from __future__ import annotations

import io
import json

import pytest

from headwater.kernel.logs import Log, configure, scrub


def captured(log_format: str) -> tuple[Log, io.StringIO]:
    stream = io.StringIO()
    configure(log_format, "debug", stream)
    return Log("test"), stream


def test_text() -> None:
    log, stream = captured("text")
    log.warning("stale write refused", namespace="manifest", id=7)
    line = stream.getvalue()
    assert line.endswith("WARNING headwater.test: stale write refused namespace=manifest id=7\n")


def test_json() -> None:
    log, stream = captured("json")
    log.info("collected", deleted=3, path="a b", nothing=None)
    entry = json.loads(stream.getvalue())
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "level": "info",
        "logger": "headwater.test",
        "message": "collected",
        "deleted": 3,
        "path": "a b",
        "nothing": None,
    }


def test_a_field_cannot_hide_the_message() -> None:
    log, stream = captured("json")
    log.info("true", time="false", level="false")
    entry = json.loads(stream.getvalue())
    assert entry["message"] == "true"
    assert entry["level"] == "info"


def test_levels() -> None:
    stream = io.StringIO()
    configure("text", "warning", stream)
    log = Log("test")
    log.debug("no")
    log.info("no")
    log.error("yes")
    assert stream.getvalue().count("\n") == 1


SECRETS = [
    ("connecting to postgresql://ann:hunter2@db/x", {}),
    ("retrying", {"url": "https://ann:hunter2@host/path"}),
    ("settings", {"secret_access_key": "hunter2"}),
    ("settings", {"token": "hunter2"}),
    ("header Authorization: Bearer hunter2", {}),
    ("query ?X-Amz-Signature=hunter2&x=1", {}),
    ("password=hunter2", {}),
    ("failed", {"error": "{'password': 'hunter2', 'user': 'ann'}"}),
    ('{"secret_access_key": "hunter2"}', {}),
    ("Authorization: Basic hunter2", {}),
    ("clone https://hunter2@host/x", {}),
    ("postgresql://ann:hun/hunter2@db/x", {}),
    ("postgresql://ann:p@hunter2@db/x", {}),
    ("AccountKey=hunter2; x", {}),
    ("api_key=hunter2", {}),
    ("passphrase: hunter2", {}),
    ("https://host/x?sig=hunter2", {}),
    ("<Error><Token-0>hunter2</Token-0></Error>", {}),
    ("<AWSAccessKeyId>hunter2</AWSAccessKeyId>", {}),
    ("nested", {"settings": {"aws": {"secret_access_key": "hunter2"}}}),
]


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize(("message", "fields"), SECRETS)
def test_secrets_are_hidden(log_format: str, message: str, fields: dict[str, object]) -> None:
    log, stream = captured(log_format)
    log.warning(message, **fields)
    assert "hunter2" not in stream.getvalue()
    assert "***" in stream.getvalue()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_secrets_are_hidden_in_tracebacks(log_format: str) -> None:
    log, stream = captured(log_format)
    try:
        raise ValueError("could not reach postgresql://ann:hunter2@db/x")
    except ValueError as error:
        log.error("failed", cause=error)
    assert "Traceback" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def test_ordinary_text_is_left_alone() -> None:
    for text in (
        "read s3://bucket/key at 12:30, http://127.0.0.1:9000/x, boundary=7",
        "file:///etc/passwd: a part of it is a folder",
        "<Key>lake/manifest/1</Key>",
        "ann@example.com wrote 3 tokens",
    ):
        assert scrub(text) == text
