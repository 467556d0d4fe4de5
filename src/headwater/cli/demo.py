"""`headwater demo`: a writer stalls, history moves on without it, and then it wakes up.

The stalled writer is a real process, stopped by SIGSTOP between preparing its commit and making it. It is played
twice on a folder: once by a writer that trusts create-if-absent alone, once by ours.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import click
from rich.console import Console
from rich.table import Table

from headwater.app import App
from headwater.cli.output import json_option, print_json
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.failpoints import Failpoint
from headwater.kernel.settings import cache_folder, environment
from headwater.sequence.collect import Collector
from headwater.sequence.model import Entry, Namespace, Retention
from headwater.sequence.protocol import Sequencer

_NAMESPACE = Namespace("", "manifest", ".manifest")
# How many others commit before the stall, during it and after it; of those during it, the first grows old.
_BEFORE, _MEANWHILE, _AFTER = 5, 4, 2
_PAUSE_SECONDS = 0.5


class UnguardedSequencer(Sequencer):
    """What the protocol would be without its boundary: whoever creates the object believes to have committed."""

    def _is_behind(self, entry: Entry) -> bool:  # noqa: ARG002
        return False


@dataclass(frozen=True)
class Act:
    """How one playing of the story ended."""

    guarded: bool
    id: int
    told: str
    committed: bool
    in_history: bool


@click.command()
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Where to play; a temporary folder by default.")
@click.option("--master", help="Spark master; the settings' by default.")
@json_option
@click.pass_obj
def demo(app: App, folder: Path | None, master: str | None, as_json: bool) -> None:
    """Play the stalled writer, unguarded and guarded, then read the history with Spark."""
    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as temporary:
        stage = folder or Path(temporary)
        console = Console(stderr=as_json, highlight=False)
        console.print("[bold]A writer stalls, history moves on, and the writer wakes up.[/bold]")
        with console.status("playing the story twice"):
            acts = [_play(app, stage / name, console, guarded=name == "guarded") for name in ("unguarded", "guarded")]
        with console.status("Spark reads the history of the guarded namespace"):
            rows = _read_with_spark(app, stage / "guarded", master)
        if as_json:
            print_json({"acts": [vars(act) for act in acts], "history": rows})
        else:
            _print_history(console, rows)
        unguarded, guarded = acts
        if not (unguarded.committed and not unguarded.in_history and not guarded.committed):
            raise HeadwaterError("the story did not end as it should", hint="please report this with the output above")
    console.print(
        "\n[bold]Unguarded, a commit was acknowledged that no reader will ever see. "
        "Guarded, its writer was told the truth.[/bold]",
        soft_wrap=True,
    )


@click.command(hidden=True)
@click.argument("url")
@click.option("--guarded/--unguarded", default=True)
@click.pass_obj
def demo_writer(app: App, url: str, guarded: bool) -> None:
    """The writer that is going to be stopped: one commit, and one JSON line about its outcome."""
    sequencer = _open(app, url, guarded=guarded)
    latest = sequencer.latest()
    try:
        entry = sequencer.write(b"the stalled writer", after=latest)
    except HeadwaterError as error:
        print_json({"committed": False, "told": f"{error.kind}, {error.message}"})
    else:
        print_json({"committed": True, "told": f"committed {entry.id}", "writer": entry.writer})


def _open(app: App, url: str, *, guarded: bool) -> Sequencer:
    kind = Sequencer if guarded else UnguardedSequencer
    return kind(app.open_store(url), _NAMESPACE, clock=app.clock, randomness=app.randomness, metrics=app.metrics)


def _play(app: App, folder: Path, console: Console, *, guarded: bool) -> Act:
    title = "guarded by a boundary" if guarded else "unguarded"
    console.print(f"\n[cyan]{title}[/cyan]")

    def say(line: str) -> None:
        console.print(f"  {line}", soft_wrap=True)

    sequencer = _open(app, str(folder), guarded=True)
    _commit(sequencer, _BEFORE)
    say(f"others commit 1 to {_BEFORE}")
    stalled = _BEFORE + 1
    with _Stalled(folder, guarded=guarded) as writer:
        say(f"a writer reads {_BEFORE}, prepares {stalled}, and stalls (process {writer.pid} is stopped)")
        _commit(sequencer, 1)
        app.clock.sleep(_PAUSE_SECONDS)
        _commit(sequencer, _MEANWHILE - 1)
        say(f"others commit {stalled} to {_BEFORE + _MEANWHILE}")
        gone = Collector(sequencer, Retention(timedelta(seconds=_PAUSE_SECONDS / 2), timedelta(0))).collect()
        say(f"the collector raises the boundary to {gone.boundary_after} and deletes 1 to {max(gone.deleted)}")
        answer = writer.resume()
    told, committed = answer["told"], answer["committed"]
    _commit(sequencer, _AFTER)
    in_history = committed and sequencer.outcome(stalled, answer["writer"]) is True
    say(f"the writer wakes up and creates {stalled}")
    if committed and not in_history:
        say(f"[red]it is told: {told}. That is wrong: {stalled} was another's, and nobody will see this one[/red]")
    else:
        say(f"[green]it is told: {told}[/green]")
    return Act(guarded, stalled, told, committed, in_history)


def _commit(sequencer: Sequencer, count: int) -> None:
    for _ in range(count):
        sequencer.update(lambda latest: f"commit {latest.id + 1 if latest else 1}".encode())


class _Stalled:
    """A writer in a process of its own that has been stopped just before its commit."""

    def __init__(self, folder: Path, *, guarded: bool) -> None:
        environ = {**environment(), "HEADWATER_FAILPOINTS": f"{Failpoint.WRITE_BEFORE_CREATE}=stop"}
        command = [sys.executable, "-m", "headwater", "--log-level", "error", "demo-writer", str(folder)]
        self._process = subprocess.Popen(
            [*command, "--guarded" if guarded else "--unguarded"], env=environ, stdout=subprocess.PIPE
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        state = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if state is None or state.si_code != os.CLD_STOPPED:
            raise HeadwaterError("the writer ended before it could be stopped")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def resume(self) -> dict[str, Any]:
        """Wake it up, and hear what it has to say."""
        self._process.send_signal(signal.SIGCONT)
        out, _ = self._process.communicate(timeout=60)
        answer: dict[str, Any] = json.loads(out)
        return answer


def _read_with_spark(app: App, folder: Path, master: str | None) -> list[dict[str, object]]:
    # Imported here, because a plain installation has no Spark.
    from headwater.sequence.frames import history_frame
    from headwater.spark.session import iceberg_jars, spark_session

    settings = app.settings.spark.model_copy(update={"master": master, "remote": None} if master else {})
    spark = spark_session(settings, app_name="headwater demo", jars=iceberg_jars(cache_folder(), s3=False))
    try:
        boundary = _open(app, str(folder), guarded=True).boundary.read()
        frame = history_frame(spark, folder.absolute().as_uri(), _NAMESPACE)
        columns = (
            "cast(id as bigint) as id",
            "cast(payload as string) as payload",
            f"if(id <= {boundary}, 'behind the boundary', 'history') as state",
            "writer",
        )
        return [row.asDict() for row in frame.selectExpr(*columns).orderBy("id").collect()]
    finally:
        spark.stop()


def _print_history(console: Console, rows: list[dict[str, object]]) -> None:
    table = Table(
        "id", "payload", "state", "writer", title="the guarded namespace, read by Spark", title_justify="left"
    )
    for row in rows:
        style = "dim" if row["state"] != "history" else ""
        table.add_row(*(str(value) for value in row.values()), style=style)
    console.print()
    console.print(table)
