"""The DAGs in a real Airflow: every region has one, and one runs from end to end on a lake with three regions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

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
BAG = """
import json
from airflow.dag_processing.dagbag import DagBag
bag = DagBag()
print(json.dumps({
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
}))
"""


def test_every_region_has_its_dag(airflow: Airflow, tmp_path: Path) -> None:
    regions = Regions(tmp_path)
    found = airflow.ask(BAG, HEADWATER_LAKE=regions.url, HEADWATER_DAG_COPY_POOL="wide")
    assert isinstance(found, dict)
    assert found["errors"] == {}
    assert set(found["dags"]) == {f"iceberg_sync_{region}" for region in REGIONS}
    dag = found["dags"]["iceberg_sync_eu"]
    assert [each[0] for each in dag["tasks"]] == TASKS
    assert [each[1] for each in dag["tasks"]] == [[each] for each in TASKS[1:]] + [[]]
    assert (dag["schedule"], dag["catchup"], dag["active"]) == ("*/5 * * * *", False, 1)
    assert {each[0] for each in dag["tasks"] if each[2] == "wide"} == {"copy_batches", "verify_L0", "localize_metadata"}
    assert all(each[3] > 0 and each[4] > 0 for each in dag["tasks"])


def test_a_registry_that_cannot_be_read_breaks_nothing(airflow: Airflow, tmp_path: Path) -> None:
    """No lake, a lake without a registry, no such program: no DAG, no import error, and the log says why."""
    Regions(tmp_path)
    (tmp_path / "bare").mkdir()
    for more in (
        {"HEADWATER_LAKE": str(tmp_path / "bare")},
        {"HEADWATER_LAKE": str(tmp_path / "lake"), "HEADWATER_DAG_COMMAND": str(tmp_path / "no-such-program")},
    ):
        found = airflow.ask(BAG, **more)
        assert found == {"errors": {}, "dags": {}}
    told = airflow.run("dags", "list", "--local", HEADWATER_LAKE=str(tmp_path / "bare"))
    assert "the registry cannot be read by" in told.stdout + told.stderr


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
    with closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        told = database.execute("select task_id, value from xcom").fetchall()
        states = dict(database.execute("select task_id, state from task_instance").fetchall())
    assert dict(told) == dict.fromkeys(TASKS, f'"{run.id}"')
    assert states == dict.fromkeys(TASKS, "success")


STEP = """
import json, signal, sys, threading
sys.path.insert(0, DAGS)
from airflow.exceptions import AirflowException, AirflowFailException
import iceberg_sync
task = iceberg_sync.sync_dag("eu").get_task("plan_copy_batches")
threading.Timer(KILL_AFTER, task.on_kill).start()
try:
    print(json.dumps(["run", task.execute({})]))
except AirflowFailException as error:
    print(json.dumps(["final", str(error)]))
except AirflowException as error:
    print(json.dumps(["again", str(error)]))
"""


@pytest.mark.parametrize(
    ("program", "kill_after_seconds", "expected"),
    [
        ("""echo '{"run": {"run": "01ABC"}}'; echo noise >&2""", 60, ["run", "01ABC"]),
        ("""echo '{"run": null}'""", 60, ["run", None]),
        ("exit 3", 60, ["again", "step plan of eu ended with 3"]),
        ("exit 5", 60, ["again", "step plan of eu ended with 5"]),
        ("exit 4", 60, ["final", "step plan of eu was refused (exit code 4)"]),
        ("exit 2", 60, ["final", "step plan of eu was refused (exit code 2)"]),
        # Asked to end, it ends in its own order; a leased region is given back that way.
        ("trap 'echo gone > gone; exit 143' TERM; for i in $(seq 600); do sleep 0.1; done", 2, ["again", "143"]),
    ],
)
def test_how_a_task_ends(
    airflow: Airflow, tmp_path: Path, program: str, kill_after_seconds: float, expected: list[str | None]
) -> None:
    script = tmp_path / "command.sh"
    script.write_text(f"cd {tmp_path}\n[ $1 = registry ] && exit 1\n{program}\n")
    asked = STEP.replace("DAGS", repr(str(ROOT / "dags"))).replace("KILL_AFTER", str(kill_after_seconds))
    kind, told = airflow.ask(asked, HEADWATER_DAG_COMMAND=f"bash {script}")  # type: ignore[misc]
    assert kind == expected[0]
    assert told == expected[1] or (told is not None and told.endswith(f"ended with {expected[1]}"))
    assert (tmp_path / "gone").exists() == (kill_after_seconds < 60)
