"""What clients of the protocol send, where PyIceberg has no model of it or another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, field_validator
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.types import transform_dict_value_to_str
from pyiceberg.view.metadata import ViewVersion

from headwater.catalog.model import TableKey


class Identified(IcebergBaseModel):
    """The name of a table or view."""

    namespace: list[str]
    name: str


class CommitBody(IcebergBaseModel):
    """A change of one table; the name may be left out where the address says it."""

    identifier: Identified | None = None
    requirements: tuple[TableRequirement, ...] = ()
    updates: tuple[TableUpdate, ...] = ()

    @field_validator("updates", mode="before")
    @classmethod
    def _is_not_encrypted(cls, updates: Any) -> Any:
        for each in updates if isinstance(updates, (list, tuple)) else ():
            if isinstance(each, dict) and str(each.get("action")).endswith("-encryption-key"):
                raise ValueError("the lake could not read what is encrypted: leave encryption to the store")
        return updates


@dataclass(frozen=True)
class TableChange:
    """One table of a request: what it rests on, and what shall become of it."""

    key: TableKey
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


class TransactionBody(IcebergBaseModel):
    """Changes of several tables, all of them or none."""

    table_changes: list[CommitBody] = Field(alias="table-changes", min_length=1)


class CreateTableBody(IcebergBaseModel):
    """A new table, or, staged, what it would be."""

    name: str
    location: str | None = None
    schema_: Schema = Field(alias="schema")
    partition_spec: PartitionSpec | None = Field(alias="partition-spec", default=None)
    write_order: SortOrder | None = Field(alias="write-order", default=None)
    stage_create: bool = Field(alias="stage-create", default=False)
    properties: dict[str, str] = Field(default_factory=dict)

    @field_validator("properties", mode="before")
    @classmethod
    def _as_text(cls, properties: dict[str, Any] | None) -> dict[str, str]:
        return transform_dict_value_to_str(properties or {})


class RegisterBody(IcebergBaseModel):
    """A table whose document is there already."""

    name: str
    metadata_location: str = Field(alias="metadata-location")
    overwrite: bool = False


class RenameBody(IcebergBaseModel):
    """Another name for a table or view."""

    source: Identified
    destination: Identified


class CreateNamespaceBody(IcebergBaseModel):
    """A new namespace."""

    namespace: list[str] = Field(min_length=1)
    properties: dict[str, str] = Field(default_factory=dict)


class NamespacePropertiesBody(IcebergBaseModel):
    """Properties that are set and removed."""

    removals: list[str] = Field(default_factory=list)
    updates: dict[str, str] = Field(default_factory=dict)


class CreateViewBody(IcebergBaseModel):
    """A new view."""

    name: str
    location: str | None = None
    schema_: Schema = Field(alias="schema")
    view_version: ViewVersion = Field(alias="view-version")
    properties: dict[str, str] = Field(default_factory=dict)


class RegisterViewBody(IcebergBaseModel):
    """A view whose document is there already."""

    name: str
    metadata_location: str = Field(alias="metadata-location")


class AssertViewUuid(IcebergBaseModel):
    """The view must be the very one."""

    type: Literal["assert-view-uuid"]
    uuid: UUID


class AssignUuid(IcebergBaseModel):
    """The view has this uuid."""

    action: Literal["assign-uuid"]
    uuid: UUID


class UpgradeFormat(IcebergBaseModel):
    """The view has this format version."""

    action: Literal["upgrade-format-version"]
    format_version: int = Field(alias="format-version")


class AddViewSchema(IcebergBaseModel):
    """A schema that a version of the view yields."""

    action: Literal["add-schema"]
    schema_: Schema = Field(alias="schema")


class SetViewLocation(IcebergBaseModel):
    """Where the view is kept."""

    action: Literal["set-location"]
    location: str


class SetViewProperties(IcebergBaseModel):
    """Properties that are set."""

    action: Literal["set-properties"]
    updates: dict[str, str]


class RemoveViewProperties(IcebergBaseModel):
    """Properties that go."""

    action: Literal["remove-properties"]
    removals: list[str]


class AddViewVersion(IcebergBaseModel):
    """A version of the view; schema -1 is the one that was added last."""

    action: Literal["add-view-version"]
    view_version: ViewVersion = Field(alias="view-version")


class SetCurrentViewVersion(IcebergBaseModel):
    """The version that readers see; -1 is the one that was added last."""

    action: Literal["set-current-view-version"]
    view_version_id: int = Field(alias="view-version-id")


ViewUpdate = Annotated[
    AssignUuid
    | UpgradeFormat
    | AddViewSchema
    | SetViewLocation
    | SetViewProperties
    | RemoveViewProperties
    | AddViewVersion
    | SetCurrentViewVersion,
    Field(discriminator="action"),
]


class ViewCommitBody(IcebergBaseModel):
    """A change of one view."""

    identifier: Identified | None = None
    requirements: tuple[AssertViewUuid, ...] = ()
    updates: tuple[ViewUpdate, ...] = ()
