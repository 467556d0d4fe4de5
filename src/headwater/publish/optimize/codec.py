"""The durable bytes of the `compactions` namespace, as docs/formats.md describes them.

The envelope of a sequenced object has a digest of its own, so the JSON in it has none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from headwater.catalog.model import TableKey
from headwater.kernel.errors import UsageError
from headwater.kernel.ids import parse_ulid
from headwater.publish.optimize.errors import CompactionsCorruptError
from headwater.publish.optimize.model import Compactions, Job, Purpose, Run, RunState, Spec

FORMAT = 1


def encode_compactions(state: Compactions) -> bytes:
    """All jobs with their runs."""
    jobs = [_job(job) | {"run": _run(run)} for _, (job, run) in sorted(state.runs.items())]
    return json.dumps({"format": FORMAT, "jobs": jobs}, sort_keys=True).encode()


def decode_compactions(data: bytes, path: str) -> Compactions:
    """All jobs with their runs; a newer format is refused."""
    try:
        values = json.loads(data)
        version = values["format"]
        if type(version) is int and version > FORMAT:
            raise CompactionsCorruptError(path, f"has format version {version}, newer than {FORMAT}")
        found = [(_read_job(each), _read_run(each["run"])) for each in values["jobs"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, UsageError) as error:
        raise CompactionsCorruptError(path, "does not hold the state of rewrite jobs") from error
    return Compactions({job.id: (job, run) for job, run in found})


def _job(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "spec": {
            "table": str(job.spec.table),
            "branch": job.spec.branch,
            "purpose": str(job.spec.purpose),
            "target_size_bytes": job.spec.target_size_bytes,
            "min_files": job.spec.min_files,
            "delete_ratio": job.spec.delete_ratio,
            "all_deletes": job.spec.all_deletes,
        },
        "actor": job.actor,
        "branch_incarnation": job.branch_incarnation,
        "incarnation": job.incarnation,
        "metadata_location": job.metadata_location,
        "groups": job.groups,
        "files": job.files,
        "size_bytes": job.size_bytes,
    }


def _read_job(values: Mapping[str, Any]) -> Job:
    spec = values["spec"]
    target = spec["target_size_bytes"]
    return Job(
        parse_ulid(values["id"]),
        Spec(
            TableKey.parse(spec["table"]),
            str(spec["branch"]),
            Purpose(spec["purpose"]),
            None if target is None else int(target),
            int(spec["min_files"]),
            float(spec["delete_ratio"]),
            spec["all_deletes"] is True,
        ),
        str(values["actor"]),
        parse_ulid(values["branch_incarnation"]),
        str(values["incarnation"]),
        str(values["metadata_location"]),
        int(values["groups"]),
        int(values["files"]),
        int(values["size_bytes"]),
    )


def _run(run: Run) -> dict[str, Any]:
    return {
        "process": run.process,
        "started_at": run.started_at.isoformat(),
        "lease_until": run.lease_until.isoformat(),
        "state": str(run.state),
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
        "rebases": run.rebases,
        "commit": run.commit,
        "why": run.why,
    }


def _read_run(values: Mapping[str, Any]) -> Run:
    return Run(
        parse_ulid(values["process"]),
        _moment(values["started_at"]),
        _moment(values["lease_until"]),
        RunState(values["state"]),
        None if values["ended_at"] is None else _moment(values["ended_at"]),
        int(values["rebases"]),
        None if values["commit"] is None else str(values["commit"]),
        str(values["why"]),
    )


def _moment(text: str) -> datetime:
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError(text)
    return when.astimezone(UTC)
