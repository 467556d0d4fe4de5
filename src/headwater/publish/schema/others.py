"""Views and namespaces, which have no head: what their keys hold before a script, and after it."""

from __future__ import annotations

from headwater.catalog.model import NamespaceContent, TableKey, ViewContent
from headwater.catalog.names import DEFAULT_NAMESPACE
from headwater.kernel.ids import new_ulid
from headwater.publish.constraints.values import table as table_sql
from headwater.publish.creation import VIEWS, place_of
from headwater.publish.model import Replaced
from headwater.publish.questions import Questions
from headwater.publish.schema.model import Plan, Standing
from headwater.publish.schema.places import Place, placed
from headwater.publish.schema.wanted import CreateView
from headwater.query.views import DUCKDB
from headwater.tables.create import schema_from_arrow
from headwater.tables.head import INCARNATION, OPERATION
from headwater.tables.model import NewFile
from headwater.tables.snapshot import Staging
from headwater.tables.views import encode_view, new_view, replace_view


class Others:
    """What becomes of views and namespaces."""

    def __init__(self, lake: str, staging: Staging, standing: Standing, questions: Questions) -> None:
        self._lake = lake
        self._staging = staging
        self._standing = standing
        self._questions = questions

    def of(self, planned: Plan) -> tuple[dict[TableKey, Replaced], tuple[NewFile, ...]]:
        """What each key holds before and after, and the files that the views need."""
        before = self._standing.contents
        others = {key: Replaced(before[key], None) for key in (*planned.dropped_views, *planned.dropped_namespaces)}
        for key, (properties, _) in planned.namespaces.items():
            content = NamespaceContent(new_ulid(self._staging.clock, self._staging.randomness), properties)
            others[key] = Replaced(None, content)
        files = []
        for key, (wanted, _, at) in planned.views.items():
            made = self._view(key, wanted, at)
            if made is not None:
                others[key] = Replaced(before[key], made[0])
                files.append(made[1])
        return others, tuple(files)

    def _view(self, key: TableKey, wanted: CreateView, at: Place | None) -> tuple[ViewContent, NewFile] | None:
        """The next version of a view; None when it is the very view that is there."""
        clock, randomness, operation = self._staging.clock, self._staging.randomness, self._staging.operation
        with placed(at):
            rows = self._questions(f"SELECT * FROM {table_sql(key)} LIMIT 0")
            schema = schema_from_arrow(rows.schema, format_version=3)
        text, old = {DUCKDB: wanted.sql}, self._standing.views.get(key)
        if old is None:
            incarnation = new_ulid(clock, randomness)
            view = new_view(
                schema,
                location=place_of(self._lake, VIEWS, key, incarnation),
                sql=text,
                default_namespace=(DEFAULT_NAMESPACE,),
                properties=wanted.properties,
                incarnation=incarnation,
                operation=operation,
                clock=clock,
                randomness=randomness,
            )
        else:
            # Whoever says OR REPLACE replaces the whole view: the text for other dialects would say something else.
            view = replace_view(
                old,
                schema,
                sql=text,
                default_namespace=(DEFAULT_NAMESPACE,),
                drop_dialects=True,
                now=clock.now(),
            )
            properties = {**view.properties, **wanted.properties}
            if view is old and properties == old.properties:
                return None
            view = view.model_copy(update={"properties": {**properties, OPERATION: operation}})
        version = next(each for each in view.versions if each.version_id == view.current_version_id)
        folder = self._staging.placing.view_folder_of(view)
        location = f"{folder}/metadata/{version.version_id:05}-{operation}.metadata.json"
        before = self._standing.contents[key]
        # A view that is there keeps its identity, whoever made it.
        identity = before.content_id if before is not None else view.properties[INCARNATION]
        content = ViewContent(identity, location, version.version_id, version.schema_id)
        return content, NewFile(location, encode_view(view))
