"""What each answer of an S3 server proves, played by a server that answers as it is told."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator

import pytest
from pydantic import SecretStr

from headwater.app import App
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.settings import S3Settings, Settings
from headwater.sequence.protocol import WRITING
from headwater.storage.cloud import CloudStore, open_gcs, open_s3
from headwater.storage.errors import (
    ForbiddenError,
    MissingCapabilityError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StorageError,
    StorageOutcomeUnknownError,
    TransientError,
)
from headwater.storage.port import Capability, Create, Overwrite, PutMode, Update


class Server(http.server.ThreadingHTTPServer):
    """Answers every request with `status`; with None it hangs up instead. Status 200 stores and returns objects."""

    status: int | None = 200
    requests = 0
    body = b""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.requests += 1
        status = self.server.status
        if status is None:
            self.close_connection = True
            return
        content = self.server.body
        if status == 200:
            # A server that has never heard of conditions: it ignores them all.
            if self.command == "PUT":
                self.server.objects[self.path] = body
            elif self.command in ("GET", "HEAD"):
                content = self.server.objects.get(self.path, b"")
                status = 200 if self.path in self.server.objects else 404
        elif status == 501 and "If-None-Match" not in self.headers and "If-Match" not in self.headers:
            status = 200
        self.send_response(status)
        self.send_header("ETag", f'"{hash(content)}"')
        self.send_header("Last-Modified", "Sun, 15 Nov 2026 08:00:00 GMT")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def settings_for(url: str) -> S3Settings:
    return S3Settings(endpoint=url, access_key_id="key", secret_access_key=SecretStr("hunter2"))


@pytest.fixture
def store(server: Server) -> CloudStore:
    return open_s3("bucket", settings_for(server.url), timeout_seconds=5)


CREATE, UPDATE, OVERWRITE = Create(), Update("etag"), Overwrite()


@pytest.mark.parametrize(
    ("mode", "status", "error"),
    [
        (CREATE, 412, PreconditionFailedError),
        (UPDATE, 412, PreconditionFailedError),
        (UPDATE, 404, PreconditionFailedError),
        (CREATE, 404, ObjectNotFoundError),
        (CREATE, 409, TransientError),
        (UPDATE, 409, TransientError),
        (CREATE, 429, TransientError),
        (CREATE, 400, StorageError),
        (CREATE, 501, StorageError),
        (CREATE, 403, ForbiddenError),
        (CREATE, 401, ForbiddenError),
        (CREATE, 500, StorageOutcomeUnknownError),
        (UPDATE, 502, StorageOutcomeUnknownError),
        (CREATE, 503, StorageOutcomeUnknownError),
        (UPDATE, 504, StorageOutcomeUnknownError),
        (CREATE, 408, StorageOutcomeUnknownError),
        (CREATE, None, StorageOutcomeUnknownError),
        (OVERWRITE, 500, StorageOutcomeUnknownError),
    ],
)
def test_what_an_answer_to_a_put_proves(
    server: Server, store: CloudStore, mode: PutMode, status: int | None, error: type[HeadwaterError]
) -> None:
    server.status = status
    with pytest.raises(error) as caught:
        store.put("x", b"1", mode)
    assert type(caught.value) is error
    assert caught.value.fields["path"] == "x"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, ObjectNotFoundError),
        (403, ForbiddenError),
        (401, ForbiddenError),
        (400, StorageError),
        (429, TransientError),
        (500, TransientError),
        (503, TransientError),
        (None, TransientError),
    ],
)
def test_what_an_answer_to_a_read_proves(
    server: Server, store: CloudStore, status: int | None, error: type[HeadwaterError]
) -> None:
    server.status = status
    reads: list[Callable[[], object]] = [
        lambda: store.get("x"),
        lambda: store.get("x", span=(0, 1)),
        lambda: store.get_if_changed("x", "etag"),
        lambda: store.head("x"),
    ]
    for read in reads:
        with pytest.raises(error) as caught:
            read()
        assert type(caught.value) is error


def test_a_missing_bucket_is_not_a_missing_object(server: Server, store: CloudStore) -> None:
    server.status = 404
    server.body = b"<Error><Code>NoSuchBucket</Code></Error>"
    actions: list[Callable[[], object]] = [lambda: store.get("x"), lambda: store.put("x", b"1", Create())]
    for action in actions:
        with pytest.raises(StorageError, match="s3://bucket: there is no such bucket") as caught:
            action()
        assert not isinstance(caught.value, ObjectNotFoundError)


def test_exists_raises_on_forbidden(server: Server, store: CloudStore) -> None:
    server.status = 404
    assert store.exists("x") is False
    server.status = 403
    with pytest.raises(ForbiddenError, match="x is forbidden"):
        store.exists("x")


def test_a_put_is_sent_once(server: Server, store: CloudStore) -> None:
    """A retry inside the client would take our own object for somebody else's."""
    server.status = 500
    with pytest.raises(StorageOutcomeUnknownError):
        store.put("x", b"1", Create())
    assert server.requests == 1


def test_nobody_listening_changes_nothing() -> None:
    store = open_s3("bucket", settings_for("http://127.0.0.1:1"), timeout_seconds=5)
    with pytest.raises(TransientError):
        store.put("x", b"1", Create())
    with pytest.raises(TransientError):
        store.get("x")


@pytest.mark.parametrize("status", [200, 501])
def test_a_server_without_conditions_is_refused_at_open(server: Server, status: int) -> None:
    """One that ignores conditions, and one that says that it does not know them."""
    server.status = status
    settings = Settings.model_validate(
        {"storage": {"s3": {"endpoint": server.url, "access_key_id": "key", "secret_access_key": "hunter2"}}}
    )
    with pytest.raises(MissingCapabilityError, match=r"s3://bucket/lake has no create-if-absent") as caught:
        App(settings).open_store("s3://bucket/lake", needed=WRITING)
    assert "create-if-absent" in str(caught.value.fields["missing"])
    with pytest.raises(MissingCapabilityError):
        App(settings).open_sequencer("s3://bucket/lake", "manifest")


def test_google_has_generations_and_no_tags(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    store = open_gcs("bucket", timeout_seconds=1)
    assert store.name == "gs://bucket"
    assert Capability.UPDATE in store.capabilities
    with pytest.raises(MissingCapabilityError):
        store.put("x", b"1", Create(), tags={"a": "b"})
