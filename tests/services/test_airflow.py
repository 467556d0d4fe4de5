"""The DAGs in a real Airflow: every region has one, and one runs from end to end on a lake with three regions."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headwater.sync.runs.model import RunState
from tests.fixtures.airflow import ROOT, Airflow
from tests.unit.sync_world import REGIONS, Regions, ids

pytestmark = [
    pytest.mark.services,
    pytest.mark.slow,
    pytest.mark.timeout(900),  # the first time on a machine it installs Airflow
    pytest.mark.proves("sync airflow"),
]

TASKS = [
    "list_added_files",
    "plan_copy_batches",
    "copy_batches",
    "verify_L0",
    "localize_metadata",
    "cas_commit_replica",
    "emit_metrics",
]
# What Airflow finds in our folder, under each environment in turn: starting it takes longer than all of them.
BAGS = """
import json, os, sys
from airflow.dag_processing.dagbag import DagBag
own = dict(os.environ)
found = {}
for name, more in json.loads(sys.argv[1]).items():
    os.environ.clear()
    os.environ.update(own | more)
    print(f"BAG {name}", flush=True)
    bag = DagBag()
    found[name] = {
        "errors": bag.import_errors,
        "dags": {
            name: {
                "tasks": [[each.task_id, sorted(each.downstream_task_ids), each.pool, each.retries,
                           each.execution_timeout.total_seconds()] for each in dag.topological_sort()],
                "schedule": str(dag.schedule),
                "catchup": dag.catchup,
                "active": dag.max_active_runs,
            }
            for name, dag in bag.dags.items()
        },
    }
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Bag:
    """What Airflow found, and what it said meanwhile."""

    found: dict[str, Any]
    said: str


@pytest.fixture(scope="module")
def bags(airflow: Airflow, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bag]:
    """What Airflow finds with a registry, without one, and without our command."""
    url = Regions(tmp_path_factory.mktemp("bags")).url
    environments = {
        "regions": {"HEADWATER_LAKE": url, "HEADWATER_DAG_COPY_POOL": "wide"},
        "no lake": {"HEADWATER_LAKE": "/no/such/lake"},
        "no program": {"HEADWATER_DAG_COMMAND": "/no/such/program"},
    }
    found, said = airflow.ask(BAGS, json.dumps(environments))
    parts = {part.partition("\n")[0]: part for part in said.split("BAG ")}
    return {name: Bag(found[name], parts[name]) for name in environments}


def test_every_region_has_its_dag(bags: dict[str, Bag]) -> None:
    found = bags["regions"].found
    assert found["errors"] == {}
    assert set(found["dags"]) == {f"iceberg_sync_{region}" for region in REGIONS}
    dag = found["dags"]["iceberg_sync_eu"]
    assert [each[0] for each in dag["tasks"]] == TASKS
    assert [each[1] for each in dag["tasks"]] == [[each] for each in TASKS[1:]] + [[]]
    assert (dag["schedule"], dag["catchup"], dag["active"]) == ("*/5 * * * *", False, 1)
    assert {each[0] for each in dag["tasks"] if each[2] == "wide"} == {"copy_batches", "verify_L0", "localize_metadata"}
    assert all(each[3] > 0 and each[4] > 0 for each in dag["tasks"])


@pytest.mark.parametrize(
    ("case", "reason"), [("no lake", "/no/such/lake is no lake"), ("no program", "FileNotFoundError")]
)
def test_a_registry_that_cannot_be_read_breaks_nothing(bags: dict[str, Bag], case: str, reason: str) -> None:
    assert bags[case].found == {"errors": {}, "dags": {}}
    assert "no sync DAGs: the registry cannot be read by" in bags[case].said
    assert reason in bags[case].said


def test_a_dag_runs_from_end_to_end(airflow: Airflow, tmp_path: Path) -> None:
    """One run brings the region to the newest commit; all that tasks hand on is the id of its run."""
    regions = Regions(tmp_path)
    lake = regions.lake("us")
    lake.create_table("t", ids(0).schema, actor="ann")
    lake.load("t", ids(1, 2), actor="ann")
    regions.lake("asia").load("t", ids(3), actor="bob")
    done = airflow.run("dags", "test", "iceberg_sync_eu", HEADWATER_LAKE=regions.url)
    assert done.returncode == 0, done.stdout + done.stderr
    status = regions.status()
    assert status.pending is None
    [run] = status.runs
    assert run.state is RunState.DONE
    assert regions.rows("default.t") == [{"id": number} for number in (1, 2, 3)]
    local = f"{(tmp_path / 'eu').as_uri()}/"
    assert {path for path in regions.paths("default.t") if not path.startswith(local)} == set()
    with closing(sqlite3.connect(airflow.database)) as database:
        told = database.execute("select task_id, value from xcom").fetchall()
        states = dict(database.execute("select task_id, state from task_instance").fetchall())
    assert dict(told) == dict.fromkeys(TASKS, f'"{run.id}"')
    assert states == dict.fromkeys(TASKS, "success")


# Each command line in turn: what a task of it hands on, or how it fails.
STEP = """
import json, os, sys, threading
from airflow.sdk.exceptions import AirflowException, AirflowFailException
sys.path.insert(0, sys.argv[1])
import iceberg_sync
ends = {}
for name in sys.argv[2:]:
    os.environ["HEADWATER_DAG_COMMAND"] = "bash " + name
    task = iceberg_sync.sync_dag("eu").get_task("plan_copy_batches")
    if name.endswith("endless.sh"):
        threading.Timer(1, task.on_kill).start()
    try:
        ends[os.path.basename(name)] = ["run", task.execute({})]
    except AirflowFailException as error:
        ends[os.path.basename(name)] = ["final", str(error)]
    except AirflowException as error:
        ends[os.path.basename(name)] = ["again", str(error)]
print(json.dumps(ends))
"""
PROGRAMS = {
    "done.sh": ("""echo '{"run": {"run": "01ABC"}}'; echo noise >&2""", ["run", "01ABC"]),
    "nothing.sh": ("""echo '{"run": null}'""", ["run", None]),
    "conflict.sh": ("exit 3", ["again", "step plan of eu ended with 3"]),
    "unavailable.sh": ("exit 5", ["again", "step plan of eu ended with 5"]),
    "killed.sh": ("kill -9 $$", ["again", "step plan of eu ended with -9"]),
    "refused.sh": ("exit 4", ["final", "step plan of eu was refused (exit code 4)"]),
    "usage.sh": ("exit 2", ["final", "step plan of eu was refused (exit code 2)"]),
    # Told to end, it ends in its own order: that is how a region is given back.
    "endless.sh": (
        "trap 'touch gone; exit 143' TERM; while true; do read -t 0.1 <> <(:); done",
        ["again", "step plan of eu ended with 143"],
    ),
}


def test_how_a_task_ends(airflow: Airflow, tmp_path: Path) -> None:
    for name, (program, _) in PROGRAMS.items():
        (tmp_path / name).write_text(f"cd {tmp_path}\n[ $1 = registry ] && exit 1\n{program}\n")
    ends, told = airflow.ask(STEP, str(ROOT / "dags"), *(str(tmp_path / name) for name in PROGRAMS))
    assert ends == {name: expected for name, (_, expected) in PROGRAMS.items()}
    assert "noise" in told
    assert (tmp_path / "gone").exists()
