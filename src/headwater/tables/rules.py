"""What the schema and the metadata of a table must satisfy, whoever makes or changes them."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from pydantic import ValidationError as PydanticValidationError
from pyiceberg.conversions import to_json
from pyiceberg.exceptions import ValidationError
from pyiceberg.expressions.literals import AboveMax, BelowMin, literal
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UnknownType,
    UUIDType,
)

from headwater.tables.model import TableUsageError, UnsupportedTableError

OLDEST_NEW_VERSION, NEWEST_VERSION = 2, 3
DEFAULTS_SINCE_VERSION = 3

# Names and ids that Iceberg keeps for columns of its own.
RESERVED_COLUMNS = frozenset(
    {
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
        "_row_id",
        "_last_updated_sequence_number",
    }
)
LAST_COLUMN_ID = 2147483447

_MOMENTS = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def millis(moment: datetime) -> int:
    """Milliseconds since 1970, without the rounding of floats."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def later(metadata: TableMetadata, now: datetime) -> int:
    """The time of the next document: now, but never before the document that it follows."""
    return max(millis(now), metadata.last_updated_ms)


def check_format_version(format_version: int) -> None:
    """Refuse versions that are not written here."""
    if format_version > NEWEST_VERSION:
        raise UnsupportedTableError(
            f"format version {format_version} is not supported",
            hint=f"versions up to {NEWEST_VERSION} are",
            format_version=format_version,
        )
    if format_version < OLDEST_NEW_VERSION:
        raise TableUsageError(
            f"a table cannot be made with format version {format_version}",
            hint=f"use {OLDEST_NEW_VERSION} or {NEWEST_VERSION}; version 1 has no deletes",
            format_version=format_version,
        )


def check_new_name(name: str, siblings: Iterable[str]) -> None:
    """Refuse a column name that is empty, reserved, or taken; engines differ on case, so case makes no difference."""
    if not name or name != name.strip():
        raise TableUsageError(f"{name!r} cannot name a column", hint="it is empty or padded with spaces", column=name)
    if name in RESERVED_COLUMNS:
        raise TableUsageError(f"{name} is a name that Iceberg reserves", hint="choose another", column=name)
    for other in siblings:
        if other.casefold() == name.casefold():
            same = "already exists" if other == name else f"differs from {other} only in case"
            raise TableUsageError(f"column {name} {same}", hint="choose another name", column=name)


def check_all_names(fields: tuple[NestedField, ...]) -> None:
    """Refuse what `check_new_name` refuses, in every struct."""
    for position, each in enumerate(fields):
        check_new_name(each.name, (other.name for other in fields[:position]))
        check_names_within(each.field_type)


def check_names_within(kind: IcebergType) -> None:
    """Refuse what `check_new_name` refuses, in every struct within a type."""
    match kind:
        case StructType():
            check_all_names(kind.fields)
        case ListType():
            check_names_within(kind.element_type)
        case MapType():
            check_names_within(kind.key_type)
            check_names_within(kind.value_type)


def check_schema(schema: Schema, format_version: int) -> None:
    """Refuse what the format version does not know, and name the column."""
    for field_id, field in index_by_id(schema).items():
        name = schema.find_column_name(field_id) or field.name
        if isinstance(field.field_type, GeometryType | GeographyType):
            raise UnsupportedTableError(
                f"column {name} has type {field.field_type}, which is not supported",
                hint="store it as binary",
                column=name,
            )
        needed = field.field_type.minimum_format_version()
        if format_version < needed:
            raise _needs(needed, f"column {name} has type {field.field_type}", format_version, name)
        has_default = field.initial_default is not None or field.write_default is not None
        if has_default and format_version < DEFAULTS_SINCE_VERSION:
            raise _needs(DEFAULTS_SINCE_VERSION, f"column {name} has a default", format_version, name)
        if isinstance(field.field_type, UnknownType) and field.required:
            raise TableUsageError(
                f"column {name} is required, but its type is unknown", hint="make it optional", column=name
            )
        if field_id > LAST_COLUMN_ID:
            raise TableUsageError(f"column {name} has the reserved id {field_id}", column=name, field_id=field_id)


def _needs(version: int, what: str, actual: int, column: str) -> TableUsageError:
    return TableUsageError(
        f"{what}, which needs format version {version}; the table has {actual}",
        hint=f"upgrade the table to {version}",
        column=column,
        format_version=actual,
    )


def default_json(kind: IcebergType, value: object, column: str) -> Any:
    """A default as metadata spells it; refused unless it is exactly a value of the type."""
    if value is None:
        return None
    try:
        if isinstance(kind, UUIDType):
            return str(UUID(str(value)))
        if not isinstance(kind, PrimitiveType):
            raise TypeError("only columns of a primitive type have one")  # noqa: TRY301
        exact: Any = value
        if isinstance(kind, DecimalType):
            exact = Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale))
        if isinstance(kind, FloatType):
            exact = as_float(value)
        if isinstance(kind, _MOMENTS) and isinstance(value, str):
            exact = value.replace(" ", "T", 1)  # as SQL writes it
        found = literal(exact).to(kind)
        # PyIceberg cuts what is too large down to the largest.
        fits = not isinstance(found, AboveMax | BelowMin)
        if isinstance(kind, DecimalType):
            fits = fits and exact == Decimal(str(value))
        elif isinstance(kind, IntegerType | LongType):  # it rounds what is no whole number
            fits = fits and Decimal(found.value) == Decimal(str(value))
        elif isinstance(kind, FloatType | DoubleType):  # JSON has no such numbers
            fits = fits and math.isfinite(found.value)
        if not fits or (isinstance(kind, DecimalType) and len(exact.as_tuple().digits) > kind.precision):
            raise ValueError("it does not fit")  # noqa: TRY301
        return to_json(kind, found.value)
    except (ValueError, TypeError, InvalidOperation) as error:
        raise TableUsageError(
            f"{value!r} cannot be the default of {column}, which is {kind}: {error}",
            hint="give a value of exactly that type",
            column=column,
        ) from error


def as_float(value: Any) -> Any:
    """A number as a column of floats gives it back; what is none, or is too large, as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return value


def may_widen(old: IcebergType, new: IcebergType) -> bool:
    """Whether readers show every old value unchanged in the new type. PyIceberg's own rule is laxer, about scales too.

    The specification also lets v3 tables turn dates into timestamps; the readers that we rely on do not, so we refuse.
    """
    match old, new:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()) | (UnknownType(), PrimitiveType()):
            return True
        case DecimalType(), DecimalType():
            return old.scale == new.scale and old.precision <= new.precision
        case _:
            return old == new


class FreshIds:
    """Gives every field of a type a new id: first the fields of a struct, then what is within them."""

    def __init__(self, next_id: Callable[[], int]) -> None:
        self._next_id = next_id
        self._seen: Counter[int] = Counter()
        self._new: dict[int, int] = {}

    def fields(self, fields: tuple[NestedField, ...]) -> tuple[NestedField, ...]:
        """The same fields, defaults included, under new ids."""
        ids = [self._take(each.field_id) for each in fields]
        return tuple(
            each.model_copy(update={"field_id": new, "field_type": self.type(each.field_type)})
            for new, each in zip(ids, fields, strict=True)
        )

    def type(self, kind: IcebergType) -> IcebergType:
        """The same type, its fields under new ids."""
        match kind:
            case StructType():
                return StructType(*self.fields(kind.fields))
            case ListType():
                element_id = self._take(kind.element_id)
                return ListType(element_id, self.type(kind.element_type), element_required=kind.element_required)
            case MapType():
                key_id, value_id = self._take(kind.key_id), self._take(kind.value_id)
                key, value = self.type(kind.key_type), self.type(kind.value_type)
                return MapType(key_id, key, value_id, value, value_required=kind.value_required)
            case _:
                return kind

    def new_id(self, old_id: int) -> int:
        """What became of an id; refused when no field had it, or several."""
        if self._seen[old_id] != 1:
            raise TableUsageError(
                f"{old_id} is the id of {self._seen[old_id] or 'no'} columns",
                hint="what refers to a column by id needs a schema in which that id is there once",
                field_id=old_id,
            )
        return self._new[old_id]

    def _take(self, old_id: int) -> int:
        self._seen[old_id] += 1
        self._new[old_id] = self._next_id()
        return self._new[old_id]


def checked(metadata: TableMetadata) -> TableMetadata:
    """The same document, after PyIceberg has accepted what would be stored of it."""
    try:
        TableMetadataUtil.parse_obj(metadata.model_dump(mode="json"))
    except (ValidationError, PydanticValidationError, ValueError, TypeError) as error:
        raise TableUsageError(
            f"the change would make metadata that is not valid: {error}", hint="change what it names"
        ) from error
    return metadata
