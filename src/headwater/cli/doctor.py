"""`headwater doctor`: is this machine, and is this store, fit for work?"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from headwater.app import App
from headwater.catalog.nessie.urls import is_nessie_url, parse_nessie_url
from headwater.cli.output import json_option, print_json, print_table
from headwater.kernel.errors import HeadwaterError, RefusedError
from headwater.kernel.logs import scrub
from headwater.sequence.protocol import WRITING
from headwater.storage.port import ObjectStore
from headwater.storage.probe import PREFIX, RaceResult, probe, race
from headwater.storage.urls import parse_url

_ROUNDS_A_STEP = 20


@click.command()
@click.argument("url", required=False)
@click.option("--rounds", default=200, show_default=True, type=click.IntRange(1), help="Rounds of the race.")
@click.option("--writers", default=32, show_default=True, type=click.IntRange(2, 256), help="Writers in each round.")
@json_option
@click.pass_obj
def doctor(app: App, url: str | None, rounds: int, writers: int, as_json: bool) -> None:
    """Check this machine and, with a URL, whether its store compares and swaps as metadata needs it.

    The store is tried for real, on objects under _headwater/probe/ that are removed again: WRITERS create the
    same object at the same moment, and exactly one may win, in each of ROUNDS rounds. Exit code 4 means that
    the store is not safe for sequenced metadata.
    """
    checks: list[tuple[str, bool, str]] = [
        ("python", sys.version_info >= (3, 11), platform.python_version()),
        ("java", shutil.which("java") is not None, shutil.which("java") or "not found: Spark needs Java 17 or 21"),
    ]
    checks += [(name, *_answers(opened)) for name, opened in _configured(app)]
    safe = True
    if url is not None:
        if is_nessie_url(url):
            checks.append(("lake", *_answers(partial(app.open_lake, url, read_only=True))))
            url = parse_nessie_url(url).warehouse
        made = _missing_folders(url)
        store = app.open_store(url)
        shown = probe(store, app.clock, app.randomness)
        missing = sorted(WRITING - shown)
        checks.append(("compare-and-swap", not missing, f"lacks {', '.join(missing)}" if missing else "shown"))
        result = _race(app, store, rounds=rounds, writers=writers, quiet=as_json)
        checks.append(("race", result.clean, _verdict(result)))
        safe = not missing and result.clean
        _tidy(made)
    if as_json:
        print_json({"checks": [{"name": name, "ok": ok, "detail": detail} for name, ok, detail in checks]})
    else:
        print_table(("check", "", "detail"), [(name, "ok" if ok else "FAILS", detail) for name, ok, detail in checks])
    if not safe:
        raise RefusedError(f"{url} is not safe for sequenced metadata", hint="use another store, or fix this one")
    if not all(ok for _, ok, _ in checks):
        raise HeadwaterError("this machine lacks something", hint="see the table")


def _configured(app: App) -> Iterator[tuple[str, Callable[[], object]]]:
    """The services that the settings name, each with a call that it must answer."""
    if app.settings.database is not None:
        yield "database", lambda: _ask_database(app)
    if app.settings.coordination is not None:
        yield "coordination", lambda: _ask_coordination(app)


def _ask_database(app: App) -> None:
    with app.open_database() as database, database.read() as connection:
        database.now(connection)


def _ask_coordination(app: App) -> None:
    coordination = app.open_coordination()
    try:
        coordination.get("headwater/doctor")
    finally:
        coordination.close()


def _answers(call: Callable[[], object]) -> tuple[bool, str]:
    try:
        call()
    except HeadwaterError as error:
        return False, scrub(error.message)
    return True, "answers"


def _race(app: App, store: ObjectStore, *, rounds: int, writers: int, quiet: bool) -> RaceResult:
    total = RaceResult(0, writers, 0, 0, 0)
    with Progress(console=Console(stderr=True), disable=quiet or not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task("racing writers", total=rounds)
        while total.rounds < rounds:
            step = race(
                store, app.clock, app.randomness, writers=writers, rounds=min(_ROUNDS_A_STEP, rounds - total.rounds)
            )
            total = total.plus(step)
            progress.update(task, completed=total.rounds)
    return total


def _missing_folders(url: str) -> list[Path]:
    """The folders above the probes that are not there yet, the deepest first."""
    parsed = parse_url(url)
    if parsed.scheme != "file":
        return []
    probes = Path(parsed.container) / PREFIX
    return [folder for folder in (probes, *probes.parents) if not folder.exists()]


def _tidy(made: list[Path]) -> None:
    """Remove the folders that the probes have made; what is not empty stays."""
    for folder in made:
        with suppress(OSError):
            folder.rmdir()


def _verdict(result: RaceResult) -> str:
    told = f"{result.writers} writers, {result.rounds} rounds"
    if result.clean:
        return f"{told}, one winner each"
    return (
        f"{told}: {result.double_wins} with several winners, {result.no_wins} with none, "
        f"{result.wrong_content} with the wrong content"
    )
