"""How changes of columns are made, one after the other on a draft of a schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import assert_never

from pyiceberg.types import FloatType, IcebergType, ListType, MapType, NestedField, StructType

from headwater.kernel.errors import RefusedError
from headwater.tables.columns import (
    AddColumn,
    ColumnPath,
    Draft,
    DropColumn,
    Fields,
    MakeOptional,
    MakeRequired,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    SetDefault,
    SetDoc,
    SetIdentifierFields,
    WidenColumn,
    names_of,
    spelled,
)
from headwater.tables.model import TableUsageError
from headwater.tables.rules import (
    DEFAULTS_SINCE_VERSION,
    FreshIds,
    as_float,
    check_names_within,
    check_new_name,
    default_json,
    may_widen,
)

Edit = Callable[[Fields, str], Fields]


def changed(draft: Draft, change: SchemaChange) -> Draft:
    """The draft after one change."""
    match change:
        case AddColumn():
            return _added(draft, change)
        case DropColumn(path):
            edit: Edit = lambda fields, name: tuple(each for each in fields if each is not _find(fields, name, path))  # noqa: E731
        case RenameColumn(path, new_name):
            edit = _renaming(path, new_name)
        case WidenColumn(path, kind):
            edit = _updating(path, lambda field: _widened(field, kind, path))
        case MakeOptional(path):
            edit = _updating(path, lambda _: {"required": False})
        case MakeRequired(path, no_nulls_known):
            edit = _requiring(path, unsafe=draft.has_rows and not no_nulls_known)
        case SetDoc(path, doc):
            edit = _updating(path, lambda _: {"doc": doc})
        case SetDefault(path, default):
            _refuse_old_version(draft, path, has_default=default is not None)
            edit = _updating(path, lambda field: {"write_default": default_json(field.field_type, default, field.name)})
        case MoveColumn(path):
            edit = _moving(change)
        case SetIdentifierFields(paths):
            return replace(draft, identifier_ids=tuple(sorted({_id_at(draft.fields, each) for each in paths})))
        case _:
            assert_never(change)
    return replace(draft, fields=_at(draft.fields, names_of(path), edit, path))


def _added(draft: Draft, change: AddColumn) -> Draft:
    """Ids go to the column first and then to what is within it."""
    last = draft.last_column_id

    def next_id() -> int:
        nonlocal last
        last += 1
        return last

    _refuse_old_version(draft, change.path, has_default=change.default is not None)
    if change.required and change.default is None and draft.has_rows:
        raise RefusedError(
            f"column {spelled(change.path)} cannot be required: the rows that are there have no value for it",
            hint="add it as optional, or with a default (format version 3)",
            column=spelled(change.path),
        )

    def edit(siblings: Fields, name: str) -> Fields:
        check_new_name(name, (each.name for each in siblings))
        field_id = next_id()
        kind = FreshIds(next_id).type(change.type)
        check_names_within(kind)
        default = default_json(kind, change.default, spelled(change.path))
        field = NestedField(field_id, name, kind, change.required, change.doc, default, default)
        if change.first or change.after:
            place = _place(siblings, change.path, first=change.first, before=None, after=change.after)
        else:
            place = len(siblings)
        return (*siblings[:place], field, *siblings[place:])

    fields = _at(draft.fields, names_of(change.path), edit, change.path)
    return replace(draft, fields=fields, last_column_id=last)


def _refuse_old_version(draft: Draft, path: ColumnPath, *, has_default: bool) -> None:
    if has_default and draft.format_version < DEFAULTS_SINCE_VERSION:
        raise TableUsageError(
            f"column {spelled(path)} cannot have a default: that needs format version {DEFAULTS_SINCE_VERSION}",
            hint=f"upgrade the table to {DEFAULTS_SINCE_VERSION}, or let it have none",
            column=spelled(path),
            format_version=draft.format_version,
        )


def _renaming(path: ColumnPath, new_name: str) -> Edit:
    def edit(siblings: Fields, name: str) -> Fields:
        field = _find(siblings, name, path)
        check_new_name(new_name, (each.name for each in siblings if each is not field))
        return _put(siblings, field, {"name": new_name})

    return edit


def _updating(path: ColumnPath, update: Callable[[NestedField], dict[str, object]]) -> Edit:
    def edit(siblings: Fields, name: str) -> Fields:
        field = _find(siblings, name, path)
        return _put(siblings, field, update(field))

    return edit


def _requiring(path: ColumnPath, *, unsafe: bool) -> Edit:
    def update(field: NestedField) -> dict[str, object]:
        if unsafe and not field.required:
            raise RefusedError(
                f"column {spelled(path)} cannot be made required: rows that are there may have no value for it",
                hint="check that none is null, and say so",
                column=spelled(path),
            )
        return {"required": True}

    return _updating(path, update)


def _moving(change: MoveColumn) -> Edit:
    if (change.first, change.before is not None, change.after is not None).count(True) != 1:
        raise TableUsageError(
            f"where should {spelled(change.path)} go?", hint="say one of first, before, after", column=change.path
        )

    def edit(siblings: Fields, name: str) -> Fields:
        field = _find(siblings, name, change.path)
        others = tuple(each for each in siblings if each is not field)
        place = _place(others, change.path, first=change.first, before=change.before, after=change.after)
        return (*others[:place], field, *others[place:])

    return edit


def _place(siblings: Fields, path: ColumnPath, *, first: bool, before: str | None, after: str | None) -> int:
    if first:
        return 0
    beside = before if before is not None else after
    assert beside is not None
    index = siblings.index(_find(siblings, beside, (*names_of(path)[:-1], beside)))
    return index if before is not None else index + 1


def _widened(field: NestedField, new: IcebergType, path: ColumnPath) -> dict[str, object]:
    old = field.field_type
    if not may_widen(old, new):
        raise TableUsageError(
            f"column {spelled(path)} cannot become {new}: it is {old}",
            hint="int widens to long, float to double, a decimal to more digits of the same scale",
            column=spelled(path),
        )
    if not isinstance(old, FloatType):
        return {"field_type": new}
    # Metadata of other writers may spell a float's default with digits that only a double keeps.
    defaults = {"initial_default": as_float(field.initial_default), "write_default": as_float(field.write_default)}
    return {"field_type": new, **defaults}


def _at(fields: Fields, names: tuple[str, ...], edit: Edit, path: ColumnPath) -> Fields:
    """The fields with `edit` done among the siblings of the column that `names` lead to."""
    if not names:
        raise TableUsageError("a column path is empty", hint="name a column")
    if len(names) == 1:
        return edit(fields, names[0])
    field = _find(fields, names[0], path)
    return _put(fields, field, {"field_type": _within(field.field_type, names[1:], edit, path)})


def _within(kind: IcebergType, names: tuple[str, ...], edit: Edit, path: ColumnPath) -> IcebergType:
    match kind:
        case StructType():
            return StructType(*_at(kind.fields, names, edit, path))
        case ListType():
            element = _single(kind.element_field, names, edit, path)
            return ListType(kind.element_id, element.field_type, element_required=element.required)
        case MapType() if names[0] == "key":
            raise TableUsageError(
                f"{spelled(path)} lies in the keys of a map, which cannot change", column=spelled(path)
            )
        case MapType():
            value = _single(kind.value_field, names, edit, path)
            return MapType(kind.key_id, kind.key_type, kind.value_id, value.field_type, value_required=value.required)
        case _:
            raise _absent(names[0], path, ())


def _single(only: NestedField, names: tuple[str, ...], edit: Edit, path: ColumnPath) -> NestedField:
    """The element of a list or the value of a map: there is always exactly one, and its name is fixed."""
    edited = _at((only,), names, edit, path)
    if len(edited) != 1 or edited[0].name != only.name or edited[0].field_id != only.field_id:
        raise TableUsageError(
            f"{spelled(path)} is what a list or a map holds: it can be neither dropped nor renamed, nor added to",
            column=spelled(path),
        )
    return edited[0]


def _id_at(fields: Fields, path: ColumnPath) -> int:
    found: list[int] = []

    def look(siblings: Fields, name: str) -> Fields:
        found.append(_find(siblings, name, path).field_id)
        return siblings

    _at(fields, names_of(path), look, path)
    return found[0]


def _put(fields: Fields, old: NestedField, update: dict[str, object]) -> Fields:
    return tuple(each.model_copy(update=update) if each is old else each for each in fields)


def _find(fields: Fields, name: str, path: ColumnPath) -> NestedField:
    for each in fields:
        if each.name == name:
            return each
    raise _absent(name, path, (each.name for each in fields))


def _absent(name: str, path: ColumnPath, siblings: Iterable[str]) -> TableUsageError:
    there = ", ".join(siblings)
    return TableUsageError(
        f"there is no column {spelled(path)}",
        hint=f"{name} is none of {there}" if there else f"nothing lies within it that could be called {name}",
        column=spelled(path),
    )
