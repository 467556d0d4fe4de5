"""The metadata.json of a table, v1 to v3, to and from PyIceberg's model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from pydantic import ValidationError as ModelError
from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import (
    TableMetadata,
    TableMetadataUtil,
    TableMetadataV1,
    TableMetadataV2,
    TableMetadataV3,
)
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import UnknownTransform
from pyiceberg.typedef import IcebergBaseModel

from headwater.tables.avro import DAMAGE, said
from headwater.tables.compression import gunzipped
from headwater.tables.model import TableCorruptError, UnsupportedTableError

NEWEST_VERSION = 3
# Uncompressed; a table with a hundred thousand snapshots has some hundred megabytes.
MOST_BYTES: Final = 1024 * 1024 * 1024
_GZIP = b"\x1f\x8b"
_BLOB_TYPES = ("apache-datasketches-theta-v1", "deletion-vector-v1")
# Types of Iceberg that this version neither reads nor writes.
_UNSUPPORTED_TYPES = ("variant", "geometry", "geography")

# How the values of some types are written in JSON.
_JSON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    **dict.fromkeys(("string", "uuid", "binary", "date", "time", "timestamp", "timestamptz"), (str,)),
}


def decode_metadata(data: bytes, location: str) -> TableMetadata:
    """The table that the bytes describe; damage and what we do not know are told apart, and name the location."""
    document = decode_document(data, location)
    _refuse_newer(document, location)
    try:
        _refuse_unsupported_types(document, location)
        _check_defaults(document)
        metadata = TableMetadataUtil.parse_obj(_without_foreign_blobs(document))
        # PyIceberg looks these up late; a document that points at nothing is refused here.
        metadata.schema()
        metadata.spec()
    except ModelError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TableCorruptError(location, f"is not table metadata: {where}: {first['msg']}") from error
    except (*DAMAGE, ValidationError) as error:
        raise TableCorruptError(location, f"is not table metadata: {said(error)}") from error
    _check_current(metadata, location)
    _check_summaries(metadata, location)
    _refuse_unknown_transforms(metadata, location)
    return metadata


def decode_document(data: bytes, location: str) -> dict[str, Any]:
    """The JSON object itself, uncompressed."""
    try:
        text = gunzipped(data, most_bytes=MOST_BYTES) if data[:2] == _GZIP else data
        document = json.loads(text, parse_int=_long)
    except (ValueError, RecursionError, MemoryError) as error:
        raise TableCorruptError(location, f"is not JSON, or was cut short: {said(error)}") from error
    if not isinstance(document, dict) or type(document.get("format-version")) is not int:
        raise TableCorruptError(location, "is not table metadata: it has no format-version")
    return document


def _long(digits: str) -> int:
    number = int(digits)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{digits} has more than 64 bits")
    return number


def encode_metadata(metadata: TableMetadata, *, base: Mapping[str, Any] | None = None) -> bytes:
    """The bytes of a metadata.json.

    What PyIceberg's model does not know (of `base`, the document that the metadata was made from) is carried over.
    """
    # PyIceberg refuses to write v3 in the model's own method; its base class can.
    text = IcebergBaseModel.model_dump_json(metadata)
    if base is None or not says_more(base):
        return text.encode()
    document = json.loads(text)
    _carry_over(document, base)
    return json.dumps(document, separators=(",", ":")).encode()


def _check_current(metadata: TableMetadata, location: str) -> None:
    """The current snapshot is there, and the main branch knows no other; readers go by the one or by the other."""
    current, main = metadata.current_snapshot_id, metadata.refs.get(MAIN_BRANCH)
    if current is not None and metadata.current_snapshot() is None:
        raise TableCorruptError(location, f"has no snapshot {current}, which it says is current")
    if main is not None and main.snapshot_id != current:
        raise TableCorruptError(
            location, f"says that snapshot {current} is current, and that main is at snapshot {main.snapshot_id}"
        )


def _check_summaries(metadata: TableMetadata, location: str) -> None:
    """PyIceberg takes any value; everybody else, text alone."""
    for snapshot in metadata.snapshots:
        for name, value in (snapshot.summary.additional_properties if snapshot.summary else {}).items():
            if not isinstance(value, str):
                raise TableCorruptError(
                    location, f"is not table metadata: {name} of snapshot {snapshot.snapshot_id} is not a text"
                )


def says_more(base: Mapping[str, Any]) -> bool:
    """Whether a document has something that PyIceberg's model does not know, and that has to be carried over."""
    of_snapshot = _aliases(Snapshot)
    snapshots = base.get("snapshots") or ()
    return bool(
        base.keys() - _known() or base.get("statistics") or any(each.keys() - of_snapshot for each in snapshots)
    )


def _carry_over(document: dict[str, Any], base: Mapping[str, Any]) -> None:
    document.update({key: value for key, value in base.items() if key not in _known()})
    of_snapshot = _aliases(Snapshot)
    before = {each.get("snapshot-id"): each for each in base.get("snapshots") or ()}
    for snapshot in document.get("snapshots", ()):
        old = before.get(snapshot["snapshot-id"], {})
        snapshot.update({key: value for key, value in old.items() if key not in of_snapshot})
    blobs = {each.get("statistics-path"): each for each in base.get("statistics") or ()}
    document["statistics"] = [blobs.get(each["statistics-path"], each) for each in document.get("statistics", ())]


def _without_foreign_blobs(document: dict[str, Any]) -> dict[str, Any]:
    """PyIceberg knows the types of blobs that the specification names; engines write others into statistics files."""
    statistics = document.get("statistics")
    if not isinstance(statistics, list) or not all(isinstance(each, dict) for each in statistics):
        return document
    kept = [
        {**each, "blob-metadata": [blob for blob in each.get("blob-metadata") or () if blob.get("type") in _BLOB_TYPES]}
        for each in statistics
    ]
    return {**document, "statistics": kept}


@cache
def _known() -> frozenset[str]:
    return frozenset().union(*(_aliases(each) for each in (TableMetadataV1, TableMetadataV2, TableMetadataV3)))


@cache
def _aliases(model: type[IcebergBaseModel]) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in model.model_fields.items())


def _refuse_newer(document: Mapping[str, Any], location: str) -> None:
    version = document["format-version"]
    if version > NEWEST_VERSION or version < 1:
        raise UnsupportedTableError(
            f"{location} is a table of Iceberg format version {version}",
            hint=f"versions 1 to {NEWEST_VERSION} are known; upgrade headwater",
            path=location,
            format_version=version,
        )


def _refuse_unsupported_types(document: Mapping[str, Any], location: str) -> None:
    for schema in (document.get("schema"), *(document.get("schemas") or ())):
        for column, kind in _columns(schema, ""):
            if kind.startswith(_UNSUPPORTED_TYPES):
                raise UnsupportedTableError(
                    f"{location}: column {column} is of type {kind}, which is not supported",
                    hint="drop the column, or read the table with another engine",
                    path=location,
                    column=column,
                )


def _columns(kind: object, name: str) -> Iterator[tuple[str, str]]:
    """Every column with a type that is a word, by its dotted name."""
    if isinstance(kind, str):
        yield name, kind
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields") or ():
        if isinstance(field, dict):
            yield from _columns(field.get("type"), f"{name}.{field.get('name')}".lstrip("."))
    for part in ("element", "key", "value"):
        yield from _columns(kind.get(part), f"{name}.{part}".lstrip("."))


def _check_defaults(document: Mapping[str, Any]) -> None:
    """A default of another type than its column's is found out here, and not when rows are read."""
    fields: list[Any] = [document.get("schema"), *(document.get("schemas") or ())]
    while fields:
        each = fields.pop()
        if not isinstance(each, dict):
            continue
        fields += each.get("fields") or ()
        fields += (each.get(part) for part in ("type", "element", "key", "value"))
        allowed = _JSON_TYPES.get(each["type"]) if isinstance(each.get("type"), str) else None
        for name in ("initial-default", "write-default"):
            value = each.get(name)
            if value is not None and allowed is not None and type(value) not in allowed:
                raise ValueError(f"{name} of column {each.get('name')} is {value!r}, which is no {each['type']}")


def _refuse_unknown_transforms(metadata: TableMetadata, location: str) -> None:
    fields = [(field, field.transform) for spec in metadata.partition_specs for field in spec.fields]
    fields += [(field, field.transform) for order in metadata.sort_orders for field in order.fields]  # type: ignore[misc]
    for field, transform in fields:
        if isinstance(transform, UnknownTransform):
            raise UnsupportedTableError(
                f"{location}: {transform._transform} of column {field.source_id} is not a transform that is known",
                hint="upgrade headwater, or change the table's partitioning with the engine that made it",
                path=location,
            )
