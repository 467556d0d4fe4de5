"""What the routes of the protocol share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from fastapi import Request, Response

from headwater.access.model import Role
from headwater.catalog.model import Content, Ref, TableContent, TableKey, ViewContent
from headwater.kernel.errors import HeadwaterError
from headwater.lake import Lake
from headwater.publish.schema.wanted import Statement
from headwater.server.iceberg.decide import branch_of, namespace_of, refuse_unwritable
from headwater.server.iceberg.errors import BodyError
from headwater.server.iceberg.model import CreateTableBody, Identified
from headwater.server.iceberg.protocol import Commits, Desk, Draft, answered_too_late
from headwater.server.iceberg.reading import Reading, etag_of
from headwater.server.iceberg.tables import new_document
from headwater.tables.metadata import encode_metadata

# Who calls, if the caller may act in the role; otherwise `TokenRefusedError` or `RoleRefusedError`.
ActorOf: TypeAlias = Callable[[Request, Role], str]

JSON = "application/json"


@dataclass(frozen=True)
class Context:
    """A lake, what reads it and what writes it, and who may."""

    lake: Lake
    reading: Reading
    commits: Commits
    actor_of: ActorOf

    def readable(self, request: Request, prefix: str) -> Ref:
        """The branch or tag, for who may read."""
        self.actor_of(request, Role.READER)
        return self.reading.ref(prefix)

    def land(self, request: Request, prefix: str, drafted: Callable[[Desk], Draft | None]) -> str:
        """The hash of the commit that the draft has become, for who may write."""
        actor = self.actor_of(request, Role.WRITER)
        return self.commits.land(branch_of(prefix), actor, drafted)

    def apply(self, request: Request, prefix: str, looked_at: Callable[[Ref], Statement]) -> None:
        """Carry out one statement of DDL, for who may write."""
        actor = self.actor_of(request, Role.WRITER)
        self.commits.apply(branch_of(prefix), actor, looked_at)

    def staged(self, request: Request, prefix: str, key: TableKey, body: CreateTableBody) -> Response:
        """What a new table would be. Nothing is written: the client commits it, or forgets it."""
        self.actor_of(request, Role.WRITER)
        ref = self.reading.ref(prefix)
        refuse_unwritable(ref)
        desk = Desk(self.lake.standpoint(ref.name), self.lake.writing.staging(), self.lake.location)
        desk.free(key)
        document = encode_metadata(new_document(desk, key, body))
        return Response(self.reading.wrapped(None, document), media_type=JSON)

    def shown_table(self, at_hash: str, key: TableKey) -> Response:
        """The answer to a change of a table that was made."""

        def shown(content: Content | None) -> Response:
            assert isinstance(content, TableContent)
            tag = {"ETag": etag_of(content, None)}
            return Response(self.reading.loaded_table(content), media_type=JSON, headers=tag)

        return self._shown(at_hash, key, shown)

    def shown_view(self, at_hash: str, key: TableKey) -> Response:
        """The answer to a change of a view that was made."""

        def shown(content: Content | None) -> Response:
            assert isinstance(content, ViewContent)
            return Response(self.reading.loaded_view(content), media_type=JSON)

        return self._shown(at_hash, key, shown)

    def _shown(self, at_hash: str, key: TableKey, shown: Callable[[Content | None], Response]) -> Response:
        """An error here is an unknown outcome: the change is there, and its maker must not clean up (P5)."""
        try:
            return shown(self.lake.catalog.content(at_hash, [key]).get(key))
        except HeadwaterError as error:
            raise answered_too_late(at_hash, error) from error


def key_of(namespace: str, name: str) -> TableKey:
    """The key that an address means."""
    return TableKey(namespace_of(namespace), name)


def key_in(identified: Identified | None) -> TableKey:
    """The key that a body means."""
    if identified is None:
        raise BodyError("a change says nothing of its table", hint="give each an identifier")
    return TableKey(tuple(identified.namespace), identified.name)
