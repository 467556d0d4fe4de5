"""The bodies of the lake API, as OpenAPI shows them."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticSerializationError


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="after")
    def _is_text(self) -> Self:
        """JSON can spell what is no text: half a character, which nothing could store."""
        try:
            self.model_dump_json()
        except PydanticSerializationError as error:
            raise ValueError("it is not valid Unicode") from error
        return self


class Mutation(_Body):
    """Statements that land as one commit, or not at all."""

    sql: str | Annotated[list[str], Field(min_length=1, max_length=1000)] = Field(
        description="INSERT, UPDATE, DELETE or MERGE: one statement, or several that see each other.",
        examples=["update accounts set balance = balance - 10 where id = 1"],
    )
    message: str = Field("a transaction", min_length=1, max_length=10_000, description="Why, for the log.")

    @property
    def statements(self) -> list[str]:
        """Each statement."""
        return [self.sql] if isinstance(self.sql, str) else self.sql


class Question(_Body):
    """A SELECT over all tables at one commit."""

    sql: str = Field(description="One SELECT.", examples=["select count(*) from accounts"])
    at: str | None = Field(None, description="A hash or its beginning, a tag, or a moment like 2026-11-15T09:30Z.")


class Script(_Body):
    """A script of CREATE, DROP, ALTER and COMMENT ON."""

    sql: str = Field(description="The statements, separated by semicolons.", examples=["create table t (id bigint)"])
    message: str | None = Field(None, min_length=1, max_length=10_000, description="Why, for the log.")
    dry_run: bool = Field(default=False, description="Only say what it would change.")


class NewBranch(_Body):
    """A branch to be made."""

    name: str = Field(description="Its name.", examples=["work"])
    at: str | None = Field(None, description="Where it begins: a hash, tag, branch or moment; the head of main.")


class NewTag(_Body):
    """A tag to be made."""

    name: str = Field(description="Its name.", examples=["v1"])
    at: str | None = Field(None, description="What it names: a hash, tag, branch or moment; the head of main.")


class MergeWish(_Body):
    """What is to be merged into a branch."""

    source: str = Field(description="A branch, tag or hash.", examples=["work"])
    message: str | None = Field(None, min_length=1, max_length=10_000, description="Why, for the log.")


class Problem(BaseModel):
    """What went wrong. `code` is for programs, `hint` says the way out; further fields name what it is about."""

    model_config = ConfigDict(extra="allow")

    error: str
    code: str
    hint: str | None = None


class ManifestConflict(BaseModel):
    """The table that somebody else changed, and the numbers of its versions."""

    model_config = ConfigDict(extra="forbid")

    table_key: str
    expected: int | None
    actual: int | None


class ConflictProblem(Problem):
    """Somebody else won. Nothing was changed."""

    manifest_conflict: ManifestConflict | None = None
