"""The lake's objects as JSON, in the shape that the API promises."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from pyiceberg.table.metadata import TableMetadataV1, TableMetadataV2, TableMetadataV3

from headwater.catalog.model import Commit, Content, Difference, Ref, TableContent, ViewContent
from headwater.lake import Listed
from headwater.publish.model import DID, Recovered, Sidecar

Shape = dict[str, object]

_TABLE = (TableMetadataV1, TableMetadataV2, TableMetadataV3)


def ref_shape(ref: Ref) -> Shape:
    """A branch or tag."""
    return {"name": ref.name, "kind": str(ref.kind), "hash": ref.hash, "incarnation": ref.incarnation}


def commit_shape(commit: Commit) -> Shape:
    """One entry of the log."""
    return {
        "hash": commit.hash,
        "parents": list(commit.parents),
        "actor": commit.actor,
        "message": commit.message,
        "properties": dict(commit.properties),
        "committed_at": commit.committed_at.isoformat(),
        "operation": commit.operation,
    }


def table_shape(listed: Listed) -> Shape:
    """A table or view; one that cannot be read shows its error."""
    shape: Shape = {
        "table": str(listed.key),
        "kind": "table" if isinstance(listed.content, TableContent) else "view",
        **asdict(listed.content),
        "error": listed.error.message if listed.error else None,
    }
    if isinstance(listed.metadata, _TABLE):
        shape["format_version"] = listed.metadata.format_version
        shape["columns"] = [
            {"name": each.name, "type": str(each.field_type), "required": each.required}
            for each in listed.metadata.schema().fields
        ]
    return shape


def told(commit: Commit) -> Shape:
    """What was answered, or would have been, to the request that made this commit; the log keeps it."""
    did = commit.properties.get(DID)
    return {"operation": commit.operation, "commit": commit.hash, **(json.loads(did) if did is not None else {})}


def difference_shapes(differences: Sequence[Difference]) -> list[Shape]:
    """What a commit changed: names that came, went, or hold something else than before."""
    return [
        {
            "name": str(each.key),
            "change": "removed" if each.after is None else "added" if each.before is None else "changed",
            "before": _place(each.before),
            "after": _place(each.after),
        }
        for each in differences
    ]


def _place(content: Content | None) -> str | None:
    """Where the document of a table or view lies; a namespace has none."""
    return content.metadata_location if isinstance(content, TableContent | ViewContent) else None


def sidecar_shape(sidecar: Sidecar) -> Shape:
    """A change that has begun and not ended."""
    return {
        "operation": sidecar.operation,
        "kind": str(sidecar.kind),
        "actor": sidecar.actor,
        "message": sidecar.message,
        "branch": sidecar.branch,
        "lease_until": sidecar.lease_until.isoformat(),
        "tables": [
            {
                "table": str(head.key),
                "path": head.path,
                "expected_id": head.expected_id,
                "planned_id": head.planned_id,
                "identity": head.identity,
                "renamed_from": str(head.renamed_from) if head.renamed_from else None,
            }
            for head in sidecar.heads
        ],
        "drops": [str(key) for key in sorted(sidecar.drops)],
        "reads": [str(key) for key in sorted(sidecar.reads)],
        "others": [str(key) for key in sorted(sidecar.others)],
        "merge_parent": sidecar.merge_parent,
    }


def recovered_shape(recovered: Recovered) -> Shape:
    """What a recovery did about a sidecar."""
    return {
        "operation": recovered.operation,
        "verdict": str(recovered.verdict),
        "tables": {str(key): str(state) for key, state in sorted(recovered.states.items())},
        "commit": recovered.commit,
    }
