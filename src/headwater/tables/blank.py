"""What a table that is to be made by updates alone begins as: the second half of a staged create. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from pyiceberg.partitioning import PARTITION_FIELD_ID_START
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2, TableMetadataV3
from pyiceberg.table.update import AssignUUIDUpdate, SetLocationUpdate, TableUpdate, UpgradeFormatVersionUpdate

from headwater.tables.rules import check_format_version, millis

_NONE_YET = -1


def blank(updates: Sequence[TableUpdate], *, fresh_uuid: UUID, now: datetime) -> TableMetadata:
    """What the updates of a table that is to be made are applied to: a document that says nothing yet."""
    version = max((each.format_version for each in updates if isinstance(each, UpgradeFormatVersionUpdate)), default=2)
    check_format_version(version)
    given = next((each.uuid for each in updates if isinstance(each, AssignUUIDUpdate)), fresh_uuid)
    place = next((each.location for each in updates if isinstance(each, SetLocationUpdate)), "")
    model: Any = TableMetadataV3 if version == 3 else TableMetadataV2
    made: TableMetadata = model.model_construct(
        format_version=version,
        location=place.rstrip("/"),
        table_uuid=given,
        last_updated_ms=millis(now),
        last_column_id=0,
        schemas=[],
        current_schema_id=_NONE_YET,
        partition_specs=[],
        default_spec_id=_NONE_YET,
        last_partition_id=PARTITION_FIELD_ID_START - 1,
        properties={},
        current_snapshot_id=None,
        snapshots=[],
        snapshot_log=[],
        metadata_log=[],
        sort_orders=[],
        default_sort_order_id=_NONE_YET,
        refs={},
        statistics=[],
        partition_statistics=[],
        last_sequence_number=0,
        **({"next_row_id": 0} if version == 3 else {}),
    )
    return made
