"""A stored file as one that can be read from any place."""

from __future__ import annotations

import io

import pyarrow as pa

from headwater.tables.files import FileReader

# A file up to this size is read whole, in one request.
_SMALL_FILE_BYTES = 1 << 20


def open_span_file(files: FileReader, location: str, size_bytes: int) -> pa.PythonFile:
    """The file for Arrow to read; nothing is fetched before it is asked for."""
    return pa.PythonFile(_SpanFile(files, location, size_bytes), mode="r")


class _SpanFile(io.RawIOBase):
    """A file whose bytes are fetched when they are asked for."""

    def __init__(self, files: FileReader, location: str, size_bytes: int) -> None:
        super().__init__()
        self._files, self._location, self._size_bytes = files, location, size_bytes
        self._place = 0
        self._whole: bytes | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size_bytes}[whence]
        self._place = start + offset
        return self._place

    def read(self, size: int = -1) -> bytes:
        end = self._size_bytes if size < 0 else min(self._place + size, self._size_bytes)
        data = self._fetch(self._place, end) if end > self._place else b""
        self._place += len(data)
        return data

    def _fetch(self, start: int, end: int) -> bytes:
        if self._size_bytes > _SMALL_FILE_BYTES:
            return self._files.read(self._location, span=(start, end))
        if self._whole is None:
            self._whole = self._files.read(self._location)
        return self._whole[start:end]
