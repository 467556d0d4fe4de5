"""LMDB as the primary index uses it: transactions in, `IndexBackendError` out.

Commits are not synced one by one: they are in the page cache, and so survive the death of the process. `flush` makes
everything up to it durable. A machine that dies in between may leave pages of several commits mixed; whoever starts
after that cannot trust the file, and recovery rebuilds it (a new incarnation).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb

from headwater.ingest.index.errors import IndexBackendError
from headwater.kernel.errors import UsageError
from headwater.kernel.failpoints import Failpoint, hit

MAP_BYTES = 64 * 2**30
"""How large an index may become, by default: address space, not memory and not disk."""

_READERS = 1_024


class Environment:
    """An open LMDB file with the four trees of the index. Threads share it freely; a process opens it once."""

    def __init__(self, path: Path, *, map_bytes: int = MAP_BYTES) -> None:
        self.path = path
        self._is_closed = False
        with self._translated("open"):
            path.mkdir(parents=True, exist_ok=True)
            # Not writable through the map: a full disk is then an error, and not the end of the process.
            self._lmdb = lmdb.open(
                str(path),
                map_size=map_bytes,
                max_dbs=4,
                max_readers=_READERS,
                sync=False,
                readahead=False,
                meminit=False,
            )
            self.current, self.history, self.tombstones, self.about = (
                self._lmdb.open_db(name) for name in (b"current", b"history", b"tombstones", b"about")
            )

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """A transaction on one snapshot of all trees; it sees whole commits alone."""
        self._refuse_closed()
        with self._translated("read"), self._lmdb.begin(db=self.current) as transaction:
            yield transaction

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """A transaction that is committed when the block ends and undone when it raises. There is one at a time."""
        self._refuse_closed()
        with self._translated("write"), self._lmdb.begin(db=self.current, write=True) as transaction:
            yield transaction
            hit(Failpoint.PRIMARY_BEFORE_COMMIT)

    def flush(self) -> None:
        """Everything that was committed is on disk when this returns."""
        self._refuse_closed()
        with self._translated("flush"):
            self._lmdb.sync(force=True)

    def close(self) -> None:
        """Flush, and give the file back. Afterwards the index refuses to be used."""
        if not self._is_closed:
            self.flush()
            self._is_closed = True
            self._lmdb.close()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise UsageError(f"the index {self.path} is closed", path=str(self.path))

    @contextmanager
    def _translated(self, action: str) -> Iterator[None]:
        try:
            yield
        except lmdb.MapFullError as error:
            raise self._failed(action, error, "the index is full: give the node a larger index_map_bytes") from error
        except (lmdb.Error, OSError) as error:
            raise self._failed(action, error, "see that the disk is there and has room, then send it again") from error

    def _failed(self, action: str, error: Exception, hint: str) -> IndexBackendError:
        return IndexBackendError(
            f"the primary index {self.path} failed to {action}: {error}", hint=hint, path=str(self.path), action=action
        )
