"""`iceberg_sync_<region>` for each region of the registry: its replica follows `main`, step by step, every 5 minutes.

A task brings the region's run to the end of one step, by the `headwater` command, and hands on nothing but the run's
id: what a step found is in the database. So every task may be tried again, cleared or skipped at any time, and a
scheduler that dies loses nothing. One process syncs a region at a time whoever starts it; a task that finds the region
taken is tried again later.

Settings: the command's own `HEADWATER_*` variables (HEADWATER_LAKE names the lake), and these:

    HEADWATER_DAG_COMMAND          the program and its first words; `headwater` of the PATH by default
    HEADWATER_DAG_SCHEDULE         a cron line; every 5 minutes by default
    HEADWATER_DAG_READ_SECONDS     how long reading the registry may take; 20 by default, because Airflow gives this
                                   file 30 s (`core.dagbag_import_timeout`)
    HEADWATER_DAG_RETRIES          tries after the first; 3 by default
    HEADWATER_DAG_STEP_SECONDS     how long a step may take; 1800 by default
    HEADWATER_DAG_COPY_SECONDS     how long the copying may take; 21600 by default
    HEADWATER_DAG_POOL             pool of the steps that ask the catalog and the database
    HEADWATER_DAG_COPY_POOL        pool of the steps that move or read many bytes

Both pools are `default_pool` unless they are set: a pool that nobody has made would hold its tasks for ever.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

# The task ids that operators know, and the step that each brings the run to the end of.
TASKS = {
    "list_added_files": "diff",
    "plan_copy_batches": "plan",
    "copy_batches": "copy",
    "verify_L0": "verify",
    "localize_metadata": "localise",
    "cas_commit_replica": "promote",
    "emit_metrics": "observe",
}
# They take long and use the network: a pool of their own keeps them from holding up the others.
HEAVY = frozenset({"copy_batches", "verify_L0", "localize_metadata"})
OWN = "HEADWATER_DAG_"
# Usage, and refused as unsafe: the same call would be answered the same way.
FINAL_CODES = frozenset({2, 4})
# A command that is asked to end gives its region back first.
END_SECONDS = 20

log = logging.getLogger(__name__)


def setting(name: str, default: str) -> str:
    """A setting of these DAGs."""
    return os.environ.get(OWN + name) or default


def command(*words: str) -> list[str]:
    """The command line of `headwater` with these words."""
    return [*shlex.split(setting("COMMAND", "headwater")), *words]


def environment() -> dict[str, str]:
    """What the command sees: it refuses variables that it does not know, so ours stay here."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
    # A run comes every few minutes, so it goes to the newest commit; one commit a run would never catch up.
    return {"HEADWATER_SYNC_FORWARD_COMMITS": "1", **known}


def regions() -> tuple[str, ...]:
    """The regions of the registry that is in force. One that cannot be read now is read again soon: no region."""
    argv = command("registry", "show", "--json")
    try:
        done = subprocess.run(
            argv,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=int(setting("READ_SECONDS", "20")),
            check=False,
        )
        if done.returncode == 0:
            return tuple(sorted(json.loads(done.stdout)["registry"]["regions"]))
        reason = done.stderr.strip() or f"exit code {done.returncode}"
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
    log.error("no sync DAGs: the registry cannot be read by `%s`: %s", shlex.join(argv), reason)
    return ()


def run_id(answer: str) -> str | None:
    """The id of the run that a step told of; None when nothing was pending."""
    found = json.loads(answer)["run"]
    return None if found is None else found["run"]


class SyncStep(BaseOperator):
    """Brings the run of a region to the end of one step, in a process that is asked to end when the task is."""

    def __init__(self, *, region: str, step: str, **options: Any) -> None:
        super().__init__(**options)
        self.region = region
        self.step = step
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """Run the command; what it logs goes into the task's log, line by line."""
        argv = command("sync", "step", self.step, "--region", self.region, "--json")
        self.log.info("%s", shlex.join(argv))
        # The answer goes into a file: a pipe that nobody reads meanwhile would fill up and stop the command.
        with tempfile.TemporaryFile("w+") as answer:
            with subprocess.Popen(
                argv, env=environment(), stdout=answer, stderr=subprocess.PIPE, text=True
            ) as self._process:
                try:
                    self._follow(self._process)
                finally:
                    self.on_kill()
            answer.seek(0)
            told = answer.read()
        code = self._process.returncode
        if code in FINAL_CODES:
            raise AirflowFailException(f"step {self.step} of {self.region} was refused (exit code {code})")
        if code != 0:
            raise AirflowException(f"step {self.step} of {self.region} ended with {code}")
        return run_id(told)

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.log.info("%s", line.rstrip())
        process.wait()

    def on_kill(self) -> None:
        """Ask the command to end, if it runs; one that does not is ended."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()


def sync_dag(region: str) -> DAG:
    """The DAG of one region."""
    retries = int(setting("RETRIES", "3"))
    step_seconds, copy_seconds = int(setting("STEP_SECONDS", "1800")), int(setting("COPY_SECONDS", "21600"))
    pools = {True: setting("COPY_POOL", "default_pool"), False: setting("POOL", "default_pool")}
    dag = DAG(
        f"iceberg_sync_{region}",
        description=f"The replica of {region} follows main",
        schedule=setting("SCHEDULE", "*/5 * * * *"),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        # What is stuck is given up in the end; the next run goes on where it stood.
        dagrun_timeout=timedelta(seconds=6 * step_seconds + copy_seconds),
        default_args={
            "owner": "headwater",
            "retries": retries,
            "retry_delay": timedelta(seconds=30),
            "retry_exponential_backoff": True,
            "max_retry_delay": timedelta(minutes=5),
        },
        tags=["headwater", "sync", region],
    )
    before: SyncStep | None = None
    for task_id, step in TASKS.items():
        seconds = copy_seconds if task_id == "copy_batches" else step_seconds
        task = SyncStep(
            dag=dag,
            task_id=task_id,
            region=region,
            step=step,
            pool=pools[task_id in HEAVY],
            execution_timeout=timedelta(seconds=seconds),
        )
        if before is not None:
            before.set_downstream(task)
        before = task
    return dag


for each in regions():
    found = sync_dag(each)
    globals()[found.dag_id] = found
