"""The `headwater` command: settings and logs, then the command, then an exit code that is a contract.

Exit codes: 0 done, 1 failed, 2 usage, 3 conflict (a retry may win), 4 refused as unsafe, 5 a needed service is
unavailable.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click

from headwater import __version__
from headwater.app import App
from headwater.cli.output import shown
from headwater.kernel import failpoints, logs, settings
from headwater.kernel.errors import HeadwaterError, UsageError
from headwater.kernel.logs import scrub, scrub_value

# Where each command is: those that need Arrow and DuckDB are not loaded for those that do not.
COMMANDS = {
    "bootstrap": "bootstrap",
    "branch": "branch",
    "cleanup": "upkeep",
    "commits": "lake",
    "compactions": "optimize",
    "connect": "connect",
    "demo": "demo",
    "demo-teller": "bank",
    "devservices": "devservices",
    "diff": "lake",
    "doctor": "doctor",
    "indices": "optimize",
    "init": "lake",
    "load": "load",
    "mutate": "publish",
    "node": "node",
    "optimize": "optimize",
    "query": "query",
    "recover": "publish",
    "refs": "lake",
    "registry": "registry",
    "repair": "upkeep",
    "route": "route",
    "schema": "schema",
    "sequence": "sequence",
    "serve": "serve",
    "show": "lake",
    "sidecars": "publish",
    "sync": "sync",
    "tables": "lake",
    "tag": "branch",
    "token": "token",
}


class Commands(click.Group):
    """Loads a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Every command, by name."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of this name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"headwater.cli.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 conflict (a retry may win), 4 refused as unsafe, "
    "5 a needed service is unavailable.",
)
@click.version_option(__version__, prog_name="headwater")
@click.option("--settings", "settings_file", type=click.Path(path_type=Path), help="Settings file.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="How logs are printed.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="The least level printed.")
@click.pass_context
def cli(context: click.Context, settings_file: Path | None, log_format: str | None, log_level: str | None) -> None:
    """Headwater: a lakehouse that runs across regions."""
    loaded = settings.load(settings_file)
    logs.configure(log_format or loaded.log.format, log_level or loaded.log.level)
    failpoints.arm_from(settings.environment().get("HEADWATER_FAILPOINTS", ""))
    context.obj = App(loaded)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and end the process with its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _end_in_order()
    try:
        cli.main(args=given, standalone_mode=False)
    except HeadwaterError as error:
        report(error, as_json="--json" in given)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        if "--json" in given:
            report(UsageError(error.format_message()), as_json=True)
        else:
            error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except OSError as error:  # of the terminal, the pipe or the disk: everything else has an error of its own
        report(HeadwaterError(str(error)), as_json="--json" in given)
        sys.exit(1)


def _end_in_order() -> None:
    """A polite request to end unwinds the stack, so that temporary folders and child processes go."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda received, _: sys.exit(128 + received))


def report(error: HeadwaterError, *, as_json: bool) -> None:
    """Say what went wrong, and the way out, on standard error."""
    if as_json:
        click.echo(json.dumps(scrub_value(error.as_json())), err=True)
        return
    click.echo(f"error: {_lines(error.message)}", err=True)
    if error.hint:
        click.echo(f"  way out: {_lines(error.hint)}", err=True)


def _lines(text: str) -> str:
    return "\n".join(shown(line) for line in scrub(text).splitlines())


if __name__ == "__main__":
    main()
