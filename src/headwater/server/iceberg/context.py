"""What the routes of the protocol share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pyiceberg.typedef import IcebergBaseModel

from headwater.access.model import Role, RoleRefusedError
from headwater.catalog.model import Content, NamespaceContent, Ref, TableContent, TableKey, ViewContent
from headwater.kernel.errors import HeadwaterError
from headwater.lake import Lake
from headwater.publish.schema.wanted import Statement
from headwater.server.iceberg.decide import branch_of, namespace_of, page
from headwater.server.iceberg.errors import BodyError
from headwater.server.iceberg.model import CreateTableBody, Identified
from headwater.server.iceberg.protocol import Commits, Desk, Draft, Landed, Work, answered_too_late
from headwater.server.iceberg.reading import Reading
from headwater.server.iceberg.routing import parsed
from headwater.server.iceberg.tables import new_document
from headwater.server.replicas import refuse_unwritable
from headwater.tables.metadata import encode_metadata

# Who calls, if the caller may act in the role; otherwise `TokenRefusedError` or `RoleRefusedError`.
ActorOf: TypeAlias = Callable[[Request, Role], str]
# Carries a request to a branch out, once if it carries a key.
Once: TypeAlias = Callable[[Request, str, Work], Landed]

JSON = "application/json"

B = TypeVar("B", bound=IcebergBaseModel)


def as_often_as_sent(_request: Request, _branch: str, work: Work) -> Landed:
    """How requests are carried out where nothing is kept of them."""
    return work(None)


@dataclass(frozen=True)
class Context:
    """A lake, what reads it and what writes it, and who may."""

    lake: Lake
    reading: Reading
    commits: Commits
    actor_of: ActorOf
    once: Once = as_often_as_sent

    def readable(self, request: Request, prefix: str) -> Ref:
        """The branch or tag, for who may read."""
        self.actor_of(request, Role.READER)
        return self.reading.ref(prefix)

    def listed(
        self,
        request: Request,
        prefix: str,
        namespace: str,
        kind: type[Content],
        token: str | None,
        size: int | None,
    ) -> Response:
        """A page of what a namespace holds of one kind."""
        ref, within = self.readable(request, prefix), namespace_of(namespace)
        self.reading.namespace(ref, within)
        shown, following = page(self.reading.names(ref, within, kind), token, size)
        identifiers = [{"namespace": list(each[:-1]), "name": each[-1]} for each in shown]
        return JSONResponse({"identifiers": identifiers, "next-page-token": following})

    def sees_secrets(self, request: Request) -> bool:
        """Whether the caller gets what the settings say of the store whole: who may not write gets no secret."""
        if not self.reading.has_secrets:
            return True
        try:
            return bool(self._writer(request))
        except RoleRefusedError:
            return False

    def asked(self, request: Request, model: type[B], body: bytes) -> B:
        """What the body asks for; nobody else's body is looked at than that of who may write."""
        self._writer(request)
        return parsed(model, body)

    def _writer(self, request: Request) -> str:
        """Who writes; looked up once for each request."""
        if not hasattr(request.state, "writer"):
            request.state.writer = self.actor_of(request, Role.WRITER)
        writer: str = request.state.writer
        return writer

    def land(self, request: Request, prefix: str, drafted: Callable[[Desk], Draft | None]) -> Landed:
        """The commit that the draft has become, for who may write."""
        actor, branch = self._writer(request), branch_of(prefix)
        return self.commits.land(branch, actor, drafted, lambda work: self.once(request, branch, work))

    def apply(self, request: Request, prefix: str, looked_at: Callable[[Ref], Statement]) -> Landed:
        """Carry out one statement of DDL, for who may write."""
        actor, branch = self._writer(request), branch_of(prefix)
        return self.commits.apply(branch, actor, looked_at, lambda work: self.once(request, branch, work))

    def staged(self, request: Request, prefix: str, key: TableKey, body: CreateTableBody) -> Response:
        """What a new table would be. Nothing is written: the client commits it, or forgets it."""
        self._writer(request)
        ref = self.reading.ref(prefix)
        refuse_unwritable(ref)
        desk = Desk(self.lake.standpoint(ref.name), self.lake.writing.staging(), self.lake.location)
        desk.free(key)
        document = encode_metadata(new_document(desk, key, body))
        return Response(self.reading.wrapped(None, document, secrets=True), media_type=JSON)

    def shown_table(self, landed: Landed, key: TableKey) -> Response:
        """The answer to a change of a table that was made; who made it may write."""

        def shown(content: Content | None) -> Response:
            assert isinstance(content, TableContent)
            tag = {"ETag": self.reading.etag_of(content, None, secrets=True)}
            return Response(self.reading.loaded_table(content, secrets=True), media_type=JSON, headers=tag)

        return self._shown(landed.hash, key, shown)

    def shown_view(self, landed: Landed, key: TableKey) -> Response:
        """The answer to a change of a view that was made."""

        def shown(content: Content | None) -> Response:
            assert isinstance(content, ViewContent)
            return Response(self.reading.loaded_view(content), media_type=JSON)

        return self._shown(landed.hash, key, shown)

    def gone_table(self, landed: Landed, key: TableKey) -> Response:
        """The answer to a change that took a table away: what it was."""

        def shown(content: Content | None) -> Response:
            assert isinstance(content, TableContent)
            return Response(self.reading.loaded_table(content, secrets=True), media_type=JSON)

        return self._shown(self._before(landed), key, shown)

    def properties_before(self, landed: Landed, key: TableKey) -> Mapping[str, str]:
        """The properties that a namespace had before the change of them; none when nothing was changed."""
        if not landed.is_made:
            return {}
        before = self._before(landed)
        try:
            content = self.lake.catalog.content(before, [key]).get(key)
        except HeadwaterError as error:
            raise answered_too_late(landed.hash, error) from error
        return content.properties if isinstance(content, NamespaceContent) else {}

    def _before(self, landed: Landed) -> str:
        """The commit that a change was made on."""
        try:
            return self.lake.catalog.commit_at(landed.hash).parents[0]
        except HeadwaterError as error:
            raise answered_too_late(landed.hash, error) from error

    def _shown(self, at_hash: str, key: TableKey, shown: Callable[[Content | None], Response]) -> Response:
        """An error here is an unknown outcome: the change is there, and its maker must not clean up (P5)."""
        try:
            return shown(self.lake.catalog.known_content(at_hash, [key]).get(key))
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
