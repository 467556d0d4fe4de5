"""The body of a load on its way into a file, measured and digested.

Files are in a folder of the server's own, which is locked for as long as the server lives. What one that was killed
leaves behind goes when the next one starts: it finds a lock that nobody holds.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from headwater.kernel.errors import HeadwaterError
from headwater.publish.load.model import Format
from headwater.server.errors import ShapeError
from headwater.server.limits import too_long
from headwater.server.unfolding import refuse_what_unfolds

FORMATS = {
    "application/vnd.apache.arrow.stream": Format.ARROW,
    "application/vnd.apache.arrow.file": Format.ARROW,
    "application/vnd.apache.parquet": Format.PARQUET,
    "application/x-ndjson": Format.NDJSON,
    "application/jsonl": Format.NDJSON,
    "text/csv": Format.CSV,
}

PREFIX = "headwater-load-"

_AT_A_TIME = 1 << 20
_LOCK, _NEW = "lock", "headwater-new-"


@dataclass(frozen=True)
class Upload:
    """A body in a file of its own, which is gone when the request is."""

    path: Path
    format: Format
    digest: str

    @contextmanager
    def speaking_of_the_body(self) -> Iterator[None]:
        """Errors from within name the body, where they would name the file that nobody else knows."""
        try:
            yield
        except HeadwaterError as error:
            error.message = str(self._unnamed(error.message))
            error.args = (error.message,)
            error.fields = {name: self._unnamed(value) for name, value in error.fields.items() if name != "path"}
            raise

    def _unnamed(self, value: object) -> object:
        return value.replace(str(self.path), "the body") if isinstance(value, str) else value


class Uploads:
    """The folder of a server's uploads, made with the first of them. What dead servers left is removed at once."""

    def __init__(self, within: Path | None) -> None:
        self._place = within or Path(tempfile.gettempdir())
        self._turn = threading.Lock()
        self._lock: IO[bytes] | None = None
        self._folder: Path | None = None
        for each in self._place.glob(f"{PREFIX}*"):
            _remove_if_dead(each)

    @property
    def folder(self) -> Path:
        """Where they go."""
        with self._turn:
            if self._folder is None:
                made = Path(tempfile.mkdtemp(prefix=_NEW, dir=self._place))
                self._lock = (made / _LOCK).open("wb")
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                # Under the name that others look for it has its lock from the first moment on.
                self._folder = made.rename(made.with_name(made.name.replace(_NEW, PREFIX)))
            return self._folder

    def close(self) -> None:
        """All of it goes."""
        with self._turn:
            if self._folder is not None and self._lock is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._lock.close()
                self._folder = self._lock = None


def _remove_if_dead(folder: Path) -> None:
    try:
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # somebody else's, or alive, or gone
        return


@asynccontextmanager
async def received(request: Request, most_bytes: int) -> AsyncIterator[Upload]:
    """The whole body, in a file."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in FORMATS:
        raise ShapeError(
            415,
            "unsupported_media_type",
            f"rows cannot be loaded from {kind or 'a body without a content type'}",
            hint=f"send one of {', '.join(FORMATS)}",
        )
    if request.headers.get("content-encoding", "identity") != "identity":
        raise ShapeError(415, "unsupported_media_type", "the body is encoded", hint="send it without Content-Encoding")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most_bytes:
        raise too_long(most_bytes)
    uploads: Uploads = request.app.state.uploads
    folder = await run_in_threadpool(lambda: tempfile.TemporaryDirectory(dir=uploads.folder))
    try:
        path = Path(folder.name) / f"body.{FORMATS[kind]}"
        digest = await _written(request, path)
        if FORMATS[kind] is Format.ARROW and path.stat().st_size:
            await run_in_threadpool(refuse_what_unfolds, path)
        yield Upload(path, FORMATS[kind], f"{kind} {digest}")
    finally:
        folder.cleanup()


async def _written(request: Request, path: Path) -> str:
    digest, waiting, size = hashlib.sha256(), list[bytes](), 0
    file: IO[bytes] = await run_in_threadpool(lambda: path.open("wb"))
    with file:
        async for chunk in request.stream():
            waiting.append(chunk)
            size += len(chunk)
            if size >= _AT_A_TIME:
                await run_in_threadpool(_flush, file, digest, waiting)
                waiting, size = [], 0
        await run_in_threadpool(_flush, file, digest, waiting)
    return digest.hexdigest()


def _flush(file: IO[bytes], digest: hashlib._Hash, chunks: list[bytes]) -> None:
    for each in chunks:
        file.write(each)
        digest.update(each)
