"""The head of a table on a branch: which sequence it is, and what lies in it."""

from __future__ import annotations

import re
from dataclasses import replace

from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import Content, TableContent
from headwater.catalog.port import TableHeads
from headwater.kernel.ids import Ulid
from headwater.publish.model import HeadFacts, PlannedHead
from headwater.sequence.model import ID_DIGITS
from headwater.sequence.protocol import Sequencer
from headwater.storage.errors import ObjectNotFoundError
from headwater.tables.files import normalise
from headwater.tables.head import METADATA_FOLDER, METADATA_SUFFIX

# The branch on which a table was made: its sequence is the table's own, others fork.
HOME = "headwater.branch"
# Where in a table's folder its forks are, each in a folder that is named by the branch incarnation.
FORKS = "branches"

_VERSION = re.compile(rf"/{METADATA_FOLDER}/([0-9]{{{ID_DIGITS}}}){re.escape(METADATA_SUFFIX)}$")


class Heads:
    """The heads of a lake's tables."""

    def __init__(self, heads: TableHeads, location: str) -> None:
        self._heads = heads
        self._location = normalise(location)

    def sequence(self, path: str) -> Sequencer:
        """The sequence whose root is this path in the lake."""
        return self._heads.head(path)

    def path_for(self, metadata: TableMetadata, branch_incarnation: Ulid) -> str:
        """The root of the branch's own sequence of the table: the table's, or a fork by branch incarnation (P7)."""
        table = normalise(metadata.location).removeprefix(self._location + "/")
        if metadata.properties.get(HOME) == branch_incarnation:
            return table
        return f"{table}/{FORKS}/{branch_incarnation}"

    def id_in(self, path: str, content: TableContent | None) -> int:
        """The id that the content has in this sequence; 0 when it lies elsewhere."""
        place = self.place_of(content) if content is not None else None
        return place[1] if place is not None and place[0] == path else 0

    def place_of(self, content: TableContent) -> tuple[str, int] | None:
        """The sequence that holds this version, and its id there; None when it lies in none of this lake."""
        location = normalise(content.metadata_location)
        found = _VERSION.search(location)
        if found is None or not location.startswith(self._location + "/"):
            return None
        return location[len(self._location) + 1 : found.start()], int(found[1])

    def located(self, path: str, number: int, content: TableContent) -> TableContent:
        """The content at this id of the sequence."""
        return replace(content, metadata_location=f"{self._location}/{self.sequence(path).namespace.path_of(number)}")

    def remembered(self, content: TableContent) -> bytes | None:
        """The document of this version, if it is the latest that this process has seen of its table, or has written."""
        place = self.place_of(content)
        entry = self.sequence(place[0]).remembered(place[1]) if place is not None else None
        return entry.payload if entry is not None else None

    def is_taken(self, head: PlannedHead) -> bool:
        """Whether somebody sits where the head is to move."""
        return _writer(self.sequence(head.path), head.planned_id) is not None

    def settle(self, head: PlannedHead) -> None:
        """Make durable what has moved as planned: its writer may have died before it did that (P20)."""
        self.sequence(head.path).settle(head.planned_id)

    def facts(self, head: PlannedHead, pinned: Content | None) -> HeadFacts:
        """What is found of a planned head, where the branch holds `pinned`: the table, or anything else (P12)."""
        sequence = self.sequence(head.path)
        latest = sequence.latest()
        content = pinned if isinstance(pinned, TableContent) else None
        return HeadFacts(
            pinned=pinned,
            pinned_id=self.id_in(head.path, content),
            latest_id=latest.id if latest else 0,
            writer_at_planned=_writer(sequence, head.planned_id),
            writer_after=_writer(sequence, head.planned_id + 1),
        )


def _writer(sequence: Sequencer, number: int) -> Ulid | None:
    try:
        return sequence.read(number).writer
    except ObjectNotFoundError:
        return None
