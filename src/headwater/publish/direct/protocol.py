"""Publishing a change of many tables as one commit, where tables have no heads of their own (a lake on Nessie).

Promise: that of publish/protocol.py. A change that is reported is in the branch's log, whole, exactly once. One that is
reported as a conflict is in no log and never will be. Readers see all of it or nothing.

Invariants:

    1  Everything that the commit leads to is stored before it is sent, under names that nobody else has.
    2  The commit expects, for every table that it changes, the version that the change was made on, and for every table
       that was read, the version that was read (P8).
    3  Once it may have been sent, an error is either proven absent or an unknown outcome with its operation (P3).

Commit point: the catalog's commit.

Steps, and what a crash after each leaves behind:

    staged files, documents    files that nothing refers to
    commit                     a published change that nobody reported; its operation in the log identifies it

There is no note of intent: nothing moves before the commit, so a failure leaves only files, and nobody is in the way.
"""

from __future__ import annotations

from typing import Any

from headwater.catalog.errors import CatalogBusyError, CommitOutcomeUnknownError
from headwater.catalog.model import Commit, CommitRequest
from headwater.catalog.port import Catalog
from headwater.kernel.clock import Clock
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.randomness import Randomness
from headwater.publish.direct.decide import content_of, document_location, request_of
from headwater.publish.errors import PublishOutcomeUnknownError
from headwater.publish.lost import refuse_late, refuse_lost
from headwater.publish.model import TableWish, Wish
from headwater.publish.protocol import PUBLISH_RETRIES, shielded
from headwater.publish.queues import WriteQueues
from headwater.query.at_commit import Documents
from headwater.tables.files import Files
from headwater.tables.metadata import decode_document, encode_metadata
from headwater.tables.model import NewFile
from headwater.tables.naming import token_of
from headwater.tables.placing import Placing


class DirectPublisher:
    """Takes wishes to commits. One for a lake and process; safe to share among threads."""

    def __init__(
        self, catalog: Catalog, files: Files, *, placing: Placing, clock: Clock, randomness: Randomness
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._placing = placing
        self._queues = WriteQueues()
        self._clock = clock
        self._randomness = randomness
        # What tables are read by; documents that are published here come to it like any others.
        self.documents = Documents(files)

    def publish(self, wish: Wish) -> Commit:
        """Commit the wish, or say why not."""
        keys = [key for each in wish.tables for key in each.keys]
        # Writers of one process that want the same table take turns; they would only make each other lose.
        with self._queues.hold(wish.branch, keys):
            refuse_lost(self._catalog, self._clock, wish)
            documents = {each.key: self._document(wish, each) for each in wish.tables if each.staged is not None}
            planned = {
                each.key: content_of(each, each.staged.metadata, documents[each.key].location)
                for each in wish.tables
                if each.staged is not None
            }
            request_of(wish, planned)  # what no commit can say is refused before anything is written
            staged = [file for each in wish.tables if each.staged for file in each.staged.files]
            self._files.write((*wish.files, *staged, *documents.values()))
            hit(Failpoint.PUBLISH_AFTER_FILES)
            request = request_of(wish.stored(self._clock.now()), planned)
            return shielded(lambda: self._commit(wish, request))

    def _commit(self, wish: Wish, request: CommitRequest) -> Commit:
        for attempt in range(PUBLISH_RETRIES + 1):
            refuse_late(self._clock, wish)
            try:
                commit = self._catalog.commit(request)
            except CommitOutcomeUnknownError as error:
                raise PublishOutcomeUnknownError(wish.operation, error.message) from error
            except CatalogBusyError:
                if attempt == PUBLISH_RETRIES:
                    raise
            else:
                hit(Failpoint.PUBLISH_AFTER_COMMIT)
                return commit
        raise AssertionError("unreachable")

    def _document(self, wish: Wish, table: TableWish) -> NewFile:
        """The table's next document, in the region where this writer puts its files."""
        assert table.staged is not None
        metadata = table.staged.metadata
        token = token_of(wish.operation, self._randomness)
        location = document_location(self._placing.folder_of(metadata), table.pinned, token)
        return NewFile(location, encode_metadata(metadata, base=self._before(table)))

    def _before(self, table: TableWish) -> dict[str, Any] | None:
        """The document that was changed, so that nothing of it gets lost that we do not know; None for a new table."""
        source = table.made_from or table.pinned
        if source is None:
            return None
        return decode_document(self._files.read(source.metadata_location), source.metadata_location)
