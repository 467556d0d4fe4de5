"""LMDB as the primary index uses it: transactions in, `IndexBackendError` out.

Commits are not synced one by one: they are in the page cache, and so survive the death of the process. `flush` makes
everything up to it durable. A machine that dies in between may leave pages of several commits mixed; whoever starts
after that cannot trust the file, and recovery rebuilds it (a new incarnation).
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
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
# A key may touch a page of `current`, and shares those above it and those of its history.
_BYTES_A_KEY = 2 * 4_096
_SPARE_BYTES = 16 * 2**20
_FULL = "the index is full: spread its virtual nodes over more nodes"


class Environment:
    """An open LMDB file with the four trees of the index. Threads share it freely; a process opens it once."""

    def __init__(self, path: Path, *, map_bytes: int = MAP_BYTES) -> None:
        self.path = path
        self._is_closed = False
        # The number of the newest commit that touched the keys of each owner.
        self._newest: dict[Hashable | None, int] = {}
        with self._translated("open"):
            path.mkdir(parents=True, exist_ok=True)
            # Pages are not changed through the map: each time the kernel stores a page it would have to take it from
            # there again, interrupting every processor, and requests would wait for a second.
            self._lmdb = lmdb.open(
                str(path),
                map_size=map_bytes,
                max_dbs=4,
                max_readers=_READERS,
                sync=False,
                writemap=False,
                readahead=False,
                meminit=False,
            )
            self._page_bytes = int(self._lmdb.stat()["psize"])
            # What a process that died was reading would otherwise be kept for ever.
            self._lmdb.reader_check()
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
    def writing(self, owner: Hashable | None = None) -> Iterator[Any]:
        """A transaction that is committed when the block ends and undone when it raises. There is one at a time.

        It touches keys of `owner`, which nobody else ever writes; without an owner it may touch anybody's.
        """
        self._refuse_closed()
        with self._translated("write"), self._lmdb.begin(db=self.current, write=True) as transaction:
            yield transaction
            self._newest[owner] = transaction.id()  # before the commit: whoever comes next must know of it
            hit(Failpoint.PRIMARY_BEFORE_COMMIT)

    def is_unchanged(self, owner: Hashable | None, since: int) -> bool:
        """Whether no commit after number `since` touched keys of this owner. Only a transaction that writes may ask:
        while it lasts nobody else commits."""
        if owner is None:
            return max(self._newest.values(), default=0) <= since
        return max(self._newest.get(owner, 0), self._newest.get(None, 0)) <= since

    def refuse_full(self, keys: int) -> None:
        """Raise unless so many keys can be written, and written once more to undo it."""
        self._refuse_closed()
        needed = _SPARE_BYTES + 2 * _BYTES_A_KEY * keys
        with self._translated("write"):
            disk, index = os.statvfs(self.path), self._lmdb.info()
        if disk.f_bavail * disk.f_frsize < needed:
            full = f"less than {needed} bytes are free on its disk"
            raise self._failed("write", OSError(full), "make room on the disk of the node, then send it again")
        if index["map_size"] - (index["last_pgno"] + 1) * self._page_bytes < needed:
            raise self._failed("write", OSError(f"less than {needed} bytes are left of it"), _FULL)

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
            raise self._failed(action, error, _FULL) from error
        except (lmdb.Error, OSError) as error:
            raise self._failed(action, error, "see that the disk is there and has room, then send it again") from error

    def _failed(self, action: str, error: Exception, hint: str) -> IndexBackendError:
        return IndexBackendError(
            f"the primary index {self.path} failed to {action}: {error}", hint=hint, path=str(self.path), action=action
        )
