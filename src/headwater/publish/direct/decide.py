"""What a wish comes to where tables have no heads: the names of documents, and the commit. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import Change, CommitRequest, Content, Delete, Put, TableContent, TableKey
from headwater.kernel.ids import time_of
from headwater.publish.model import TableWish, Wish
from headwater.tables.head import INCARNATION, METADATA_FOLDER, METADATA_SUFFIX

_VERSION = re.compile(rf"/(\d{{1,9}})-[^/]*{re.escape(METADATA_SUFFIX)}$")


def document_location(folder: str, pinned: TableContent | None, token: str) -> str:
    """Where the next document of a table goes: its number follows on, as engines have it, and its name is its own."""
    found = _VERSION.search(pinned.metadata_location) if pinned is not None else None
    number = int(found[1]) + 1 if found else 0
    return f"{folder}/{METADATA_FOLDER}/{number:05}-{token}{METADATA_SUFFIX}"


def content_of(table: TableWish, metadata: TableMetadata, location: str) -> TableContent:
    """What the branch will hold. A table that is there keeps its identity, whoever made it; a new one gets its own."""
    return TableContent(
        table.pinned.content_id if table.pinned is not None else metadata.properties[INCARNATION],
        location,
        metadata.current_snapshot_id,
        metadata.current_schema_id,
        metadata.default_spec_id,
        metadata.default_sort_order_id or 0,
    )


def request_of(wish: Wish, planned: Mapping[TableKey, TableContent]) -> CommitRequest:
    """The one commit: every table of the wish, what else it changes, and everything that it rests on (P8)."""
    changes: dict[TableKey, Change] = {}
    expected: dict[TableKey, Content | None] = dict(wish.reads)
    for each in wish.tables:
        expected |= {each.key: None, each.renamed_from or each.key: each.pinned}
        if each.staged is None:
            changes[each.key] = Delete()
            continue
        changes[each.key] = Put(planned[each.key])
        if each.renamed_from is not None:
            changes[each.renamed_from] = Delete()
    for key, other in wish.others.items():
        changes[key] = Put(other.after) if other.after is not None else Delete()
        expected[key] = other.before
    return CommitRequest(
        branch=wish.branch,
        head=None,
        changes=changes,
        expected=expected,
        actor=wish.actor,
        message=wish.message,
        operation=wish.operation,
        properties=wish.properties,
        merge_parent=wish.merge_parent,
        incarnation=wish.branch_incarnation,
        began_at=time_of(wish.operation),
    )
