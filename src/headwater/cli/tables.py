"""How commands show a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import click
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, TableMetadataV2, TableMetadataV3
from pyiceberg.transforms import VoidTransform
from pyiceberg.view.metadata import ViewMetadata

from headwater.catalog.model import TableContent, TableKey
from headwater.cli.output import print_json, print_table, shown
from headwater.lake import Lake, Listed
from headwater.publish.constraints.codec import constraints_of
from headwater.publish.schema.ddl import transformed
from headwater.tables.metadata import encode_metadata
from headwater.tables.model import TableCorruptError
from headwater.tables.views import current_version, encode_view

_TABLE = (TableMetadataV1, TableMetadataV2, TableMetadataV3)


def row_of(listed: Listed) -> tuple[object, ...]:
    """One line of `headwater tables`."""
    kind = "table" if isinstance(listed.content, TableContent) else "view"
    if not isinstance(listed.metadata, _TABLE):
        return (listed.key, kind, "?" if listed.error else "-", "-", "-", "-")
    totals = _totals(listed.metadata)
    return (
        listed.key,
        kind,
        f"v{listed.metadata.format_version}",
        totals["rows"] if totals["rows"] is not None else "?",
        totals["data_files"] if totals["data_files"] is not None else "?",
        listed.metadata.current_snapshot_id or "-",
    )


def table_json(listed: Listed) -> dict[str, object]:
    """One table of `headwater tables --json`."""
    shown: dict[str, object] = {
        "table": str(listed.key),
        "kind": "table" if isinstance(listed.content, TableContent) else "view",
        **asdict(listed.content),
        "error": listed.error.as_json() if listed.error else None,
    }
    if isinstance(listed.metadata, _TABLE):
        shown |= {"format_version": listed.metadata.format_version, **_totals(listed.metadata)}
    return shown


def describe_table(lake: Lake, key: TableKey, at_hash: str, *, as_json: bool) -> None:
    """Everything about a table or view that its metadata says."""
    content = lake.content(key, at_hash)
    metadata = lake.metadata_of(content)
    if as_json:
        document = encode_view(metadata) if isinstance(metadata, ViewMetadata) else encode_metadata(metadata)
        print_json({"table": str(key), "content": asdict(content), "metadata": json.loads(document)})
    elif isinstance(metadata, ViewMetadata):
        _print_view(key, content.metadata_location, metadata)
    else:
        _print(key, content.metadata_location, metadata)


def _print(key: TableKey, metadata_location: str, metadata: TableMetadata) -> None:
    totals = _totals(metadata)
    for name, value in (
        ("table", key),
        ("format", f"v{metadata.format_version}"),
        ("location", metadata.location),
        ("metadata", metadata_location),
        ("rows", totals["rows"] if totals["rows"] is not None else "?"),
        ("primary key", ", ".join(_names(metadata, metadata.schema().identifier_field_ids)) or "none"),
        ("constraints", _constraints(metadata) or "none"),
        ("partitions", _partitions(metadata) or "none"),
        ("sort order", _order(metadata) or "none"),
    ):
        click.echo(f"{name:13}{shown(value)}")
    click.echo()
    print_table(
        ("id", "column", "type", "required", "comment"),
        [
            (field.field_id, field.name, field.field_type, "yes" if field.required else "", field.doc or "")
            for field in metadata.schema().fields
        ],
    )
    if metadata.snapshots:
        click.echo()
        print_table(
            ("snapshot", "time", "operation", "rows added", "rows deleted"),
            [
                (
                    each.snapshot_id,
                    datetime.fromtimestamp(each.timestamp_ms / 1000, UTC).isoformat(timespec="seconds"),
                    each.summary.operation.value if each.summary else "?",
                    (each.summary and each.summary.additional_properties.get("added-records")) or 0,
                    _deleted(each.summary.additional_properties if each.summary else {}),
                )
                for each in metadata.snapshots[-20:]
            ],
        )


def _constraints(metadata: TableMetadata) -> str:
    try:
        return ", ".join(each.name for each in constraints_of(metadata).declared)
    except TableCorruptError as error:
        return f"? ({error.message})"


def _partitions(metadata: TableMetadata) -> str:
    fields = [each for each in metadata.spec().fields if not isinstance(each.transform, VoidTransform)]
    names = _names(metadata, [each.source_id for each in fields])
    return ", ".join(transformed(field.transform, name) for field, name in zip(fields, names, strict=True))


def _order(metadata: TableMetadata) -> str:
    fields = metadata.sort_order().fields
    names = _names(metadata, [each.source_id for each in fields])
    return ", ".join(
        f"{transformed(field.transform, name)} {field.direction}" for field, name in zip(fields, names, strict=True)
    )


def _names(metadata: TableMetadata, field_ids: Sequence[int]) -> list[str]:
    """Names of columns; one that is not in the schema any more has its id."""
    return [metadata.schema().find_column_name(each) or f"column {each}" for each in field_ids]


def _print_view(key: TableKey, metadata_location: str, view: ViewMetadata) -> None:
    version = current_version(view)
    for name, value in (("view", key), ("location", view.location), ("metadata", metadata_location)):
        click.echo(f"{name:12}{shown(value)}")
    for text in version.representations:
        click.echo(f"\n{shown(text.root.dialect)}:")
        for line in text.root.sql.splitlines():
            click.echo(f"  {shown(line)}")
    schema = next(each for each in view.schemas if each.schema_id == version.schema_id)
    click.echo()
    print_table(("id", "column", "type"), [(each.field_id, each.name, each.field_type) for each in schema.fields])


def _totals(metadata: TableMetadata) -> dict[str, int | None]:
    """Rows and files by the snapshot's own summary. Equality deletes hide how many rows there are."""
    snapshot = metadata.current_snapshot()
    if snapshot is None:
        return {"rows": 0, "data_files": 0}
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    rows = _number(summary, "total-records")
    deleted = _number(summary, "total-position-deletes")
    if rows is not None and _number(summary, "total-equality-deletes") == 0 and deleted is not None:
        rows -= deleted
    else:
        rows = None
    return {"rows": rows, "data_files": _number(summary, "total-data-files")}


def _deleted(summary: dict[str, str]) -> int:
    return sum(_number(summary, name) or 0 for name in ("deleted-records", "added-position-deletes"))


def _number(summary: dict[str, str], name: str) -> int | None:
    text = summary.get(name, "")
    return int(text) if text.isdecimal() else None
