"""What a head moves to: the entry that it follows on, and the next document of its table. Nothing is written here."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import TableContent
from headwater.kernel.clock import Clock
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.randomness import Randomness
from headwater.publish.forks.protocol import Forks
from headwater.publish.heads import Heads
from headwater.publish.model import PlannedHead, TableWish, Wish
from headwater.query.at_commit import Documents
from headwater.sequence.model import Entry
from headwater.tables.files import Files
from headwater.tables.head import INCARNATION, PREVIOUS, WRITER
from headwater.tables.metadata import decode_document, encode_metadata, says_more

# Of how many documents it is remembered that nothing of them has to be carried over.
PLAIN_KEPT = 4096


@dataclass(frozen=True)
class Planned:
    """A head that is to move: the entry that it follows on, and the document that it moves to.

    A plain one says nothing that PyIceberg's model does not know.
    """

    head: PlannedHead
    before: Entry | None
    document: TableMetadata
    payload: bytes
    is_plain: bool


class Planning:
    """Plans the heads of one lake, and remembers what became of its plans. Safe to share among threads."""

    def __init__(self, files: Files, heads: Heads, forks: Forks, *, clock: Clock, randomness: Randomness) -> None:
        self.documents = Documents(files)
        self._files = files
        self._heads = heads
        self._forks = forks
        self._clock = clock
        self._randomness = randomness
        self._lock = threading.Lock()
        self._plain: dict[Ulid, None] = {}

    def plan(self, wish: Wish, table: TableWish) -> Planned:
        """The next version of the table; the caller holds its queue."""
        assert table.staged is not None
        metadata = table.staged.metadata
        path = self._heads.path_for(metadata, wish.branch_incarnation)
        before = self._forks.base(wish, table, path)
        expected_id = before.id if before else 0
        content = TableContent(
            metadata.properties[INCARNATION],
            "",
            metadata.current_snapshot_id,
            metadata.current_schema_id,
            metadata.default_spec_id,
            metadata.default_sort_order_id or 0,
        )
        head = PlannedHead(
            table.key,
            path,
            content.content_id,
            table.pinned,
            expected_id,
            new_ulid(self._clock, self._randomness),
            self._heads.located(path, expected_id + 1, content),
            table.renamed_from,
        )
        # What is followed on without being pinned is nobody's, and nothing of it is carried over.
        pinned = before if self._heads.id_in(path, table.pinned) else None
        signed, base = _signed(metadata, head.identity, before), self._document(table, pinned)
        return Planned(head, before, signed, encode_metadata(signed, base=base), is_plain=base is None)

    def _document(self, table: TableWish, before: Entry | None) -> dict[str, Any] | None:
        """The document that was changed, so that nothing of it gets lost that we do not know; None when there is none.

        One that we have made ourselves, of nothing but what we know, is not looked at again.
        """
        source = table.made_from or table.pinned
        if source is None or (table.made_from is None and before is not None and before.writer in self._plain):
            return None
        location = source.metadata_location
        own = before.payload if before is not None and table.made_from is None else None
        document = decode_document(own or self._files.read(location), location)
        return document if says_more(document) else None

    def remember(self, planned: Sequence[Planned]) -> None:
        """They are published: what lies where the heads are now is known without reading it."""
        for each in planned:
            self.documents.remember(each.head.planned.metadata_location, each.document)
        with self._lock:
            self._plain |= {each.head.identity: None for each in planned if each.is_plain}
            while len(self._plain) > PLAIN_KEPT:
                self._plain.pop(next(iter(self._plain)))


def _signed(metadata: TableMetadata, writer: Ulid, before: Entry | None) -> TableMetadata:
    """The document as the sequence will store it, so that it need not be encoded twice."""
    properties = {key: value for key, value in metadata.properties.items() if key != PREVIOUS} | {WRITER: writer}
    if before is not None:
        properties[PREVIOUS] = before.writer
    return metadata.model_copy(update={"properties": properties})
