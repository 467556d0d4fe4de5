"""How DuckDB reads files that are not plain paths: `headwater://<number>.parquet`, each a file of the plan.

Only files that were added can be opened, for reading alone, and DuckDB never sees a location: no name that a writer
chose can be taken for a pattern. Sizes come from the manifests, so opening a file costs no request.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fsspec import AbstractFileSystem  # type: ignore[import-untyped]
from fsspec.spec import AbstractBufferedFile  # type: ignore[import-untyped]

from headwater.kernel.errors import HeadwaterError
from headwater.query.model import QueryRefusedError
from headwater.tables.files import FileReader

PROTOCOL = "headwater"
ROOT = f"{PROTOCOL}://"
READ_AHEAD_BYTES = 1 << 20


class LakeFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files of one query. `failure` is what went wrong beneath DuckDB, which would only tell that something did."""

    protocol = PROTOCOL
    cachable = False

    def __init__(self, files: FileReader) -> None:
        super().__init__()
        self.files = files
        self.failure: HeadwaterError | None = None
        self._added: list[tuple[str, int]] = []

    def add(self, location: str, size_bytes: int) -> str:
        """Make a file readable; returns the name by which DuckDB reads it."""
        self._added.append((location, size_bytes))
        return f"{ROOT}{len(self._added) - 1}.parquet"

    def location_and_size(self, path: str) -> tuple[str, int]:
        """The file behind a name."""
        number = path.removeprefix(ROOT).removesuffix(".parquet")
        if not number.isdecimal() or int(number) >= len(self._added):
            raise FileNotFoundError(path)
        return self._added[int(number)]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Name, size and kind; files never change, so their time does not matter."""
        _location, size_bytes = self.location_and_size(path)
        return {"name": path, "size": size_bytes, "type": "file", "mtime": 0}

    def modified(self, path: str) -> datetime:
        """The same for all."""
        self.location_and_size(path)
        return datetime.fromtimestamp(0, UTC)

    def exists(self, path: str, **_: Any) -> bool:
        """Whether it was added."""
        try:
            self.location_and_size(path)
        except FileNotFoundError:
            return False
        return True

    def glob(self, path: str, **_: Any) -> list[str]:
        """The name itself: there are no patterns."""
        return [path] if self.exists(path) else []

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:  # noqa: FBT001, FBT002
        """The file itself: there are no folders."""
        return [self.info(path) if detail else path] if self.exists(path) else []

    def _open(self, path: str, mode: str = "rb", **_: Any) -> _LakeFile:
        if mode != "rb":
            raise QueryRefusedError(f"a query only reads, and does not open {path} as {mode}")
        location, size_bytes = self.location_and_size(path)
        return _LakeFile(self, path, location, size_bytes)


class _LakeFile(AbstractBufferedFile):  # type: ignore[misc]
    """One open file, read a span at a time with a little more than was asked for."""

    def __init__(self, filesystem: LakeFileSystem, path: str, location: str, size_bytes: int) -> None:
        super().__init__(
            filesystem, path, mode="rb", block_size=READ_AHEAD_BYTES, cache_type="readahead", size=size_bytes
        )
        self._location = location

    def _fetch_range(self, start: int, end: int) -> bytes:
        try:
            return bytes(self.fs.files.read(self._location, span=(start, end)))
        except HeadwaterError as error:
            self.fs.failure = error
            raise OSError(str(error)) from error
