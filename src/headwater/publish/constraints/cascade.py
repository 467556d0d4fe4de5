"""Which foreign keys take rows along when rows of their parent are deleted."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import TableKey
from headwater.publish.constraints.check import Ask
from headwater.publish.constraints.codec import constraints_of
from headwater.publish.constraints.declared import link_to
from headwater.publish.constraints.model import ForeignKey, OnDelete
from headwater.publish.constraints.sql import Link
from headwater.publish.errors import ConstraintBrokenError


def cascading(ask: Ask, key: TableKey, metadata: TableMetadata) -> Iterator[Link]:
    """The links from children that lose the rows of this table's keys when it loses the keys."""
    for child in constraints_of(metadata).referenced_by:
        found = metadata if child == key else ask.metadata_of(child)
        if found is None:
            raise ConstraintBrokenError(key, "foreign key", f"{child} refers to it, and is not there")
        for each in constraints_of(found).declared:
            if isinstance(each, ForeignKey) and each.parent == key and each.on_delete is OnDelete.CASCADE:
                yield link_to(child, found, each, metadata)
