"""The docs tell the truth: every setting, command, metric, failpoint and hazard is where it should be."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click

import headwater
from headwater.cli.main import cli
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.failpoints import Failpoint
from headwater.kernel.metrics import Metric
from headwater.kernel.settings import RESERVED, names, variable_of

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
HAZARDS = (ROOT / "docs" / "hazards.md").read_text()


def test_every_setting_is_in_the_reference() -> None:
    for keys, description in names():
        assert f"`{'.'.join(keys)}`" in REFERENCE
        assert f"`{variable_of(keys)}`" in REFERENCE
        assert description in REFERENCE
    for variable in RESERVED:
        assert f"`{variable}`" in REFERENCE


def commands(group: click.Group, above: tuple[str, ...] = ("headwater",)) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))
        elif not command.hidden:
            yield " ".join((*above, name)), command


def test_every_command_and_option_is_in_the_reference() -> None:
    for name, command in commands(cli):
        [row] = [line for line in REFERENCE.splitlines() if line.startswith(f"| `{name}")]
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.opts[0] in row, f"{name} {parameter.opts[0]}"
        assert command.help, name


def test_every_command_takes_json() -> None:
    for name, command in commands(cli):
        assert "--json" in {option for parameter in command.params for option in parameter.opts}, name


def test_every_metric_is_in_the_reference() -> None:
    found = set()
    for module in pkgutil.walk_packages(headwater.__path__, "headwater."):
        if "migrations" not in module.name and not module.name.endswith("__main__"):
            found |= {
                value for value in vars(importlib.import_module(module.name)).values() if isinstance(value, Metric)
            }
    assert found
    for metric in found:
        assert f"| `{metric.name}` | {metric.kind.value} |" in REFERENCE
        assert metric.help in REFERENCE


def test_every_failpoint_is_in_the_reference() -> None:
    for point in Failpoint:
        assert f"| `{point}` |" in REFERENCE


def test_every_golden_file_is_named_by_its_format() -> None:
    formats = (ROOT / "docs" / "formats.md").read_text()
    golden = {file.name for file in (ROOT / "tests" / "unit" / "golden").iterdir()}
    assert {name for name in golden if f"`{name}`" not in formats} == set()


def test_every_property_that_we_write_is_in_the_formats() -> None:
    formats = (ROOT / "docs" / "formats.md").read_text()
    texts = (file.read_text() for file in (ROOT / "src").rglob("*.py"))
    properties = {found for text in texts for found in re.findall(r'"(headwater\.[a-z.-]+)"', text)} - {
        "headwater.toml"
    }
    assert len(properties) > 10
    assert {name for name in properties if f"`{name}`" not in formats} == set()


def test_every_error_class_has_a_docstring_and_an_exit_code_of_the_contract() -> None:
    def below(kind: type[HeadwaterError]) -> Iterator[type[HeadwaterError]]:
        yield kind
        for each in kind.__subclasses__():
            yield from below(each)

    for kind in below(HeadwaterError):
        assert kind.__doc__, kind
        assert kind.exit_code in range(1, 6)


def marked(mark: str) -> set[str]:
    """What the tests say with this mark."""
    found = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == mark:
                found |= {ast.literal_eval(argument) for argument in node.args}
    return found


def hazards() -> tuple[set[str], set[str]]:
    """The hazards that are built, and those that are not yet."""
    numbers = set(re.findall(r"^- \*\*([A-Z]\d+)", HAZARDS, re.M))
    [rooms] = re.findall(r"^Not built yet: (.*)\.$", HAZARDS, re.M)
    absent = {number for number in numbers if number[0] in rooms.split(", ") or number in rooms.split(", ")}
    return numbers - absent, absent


def test_every_hazard_has_a_test_that_names_it() -> None:
    built, absent = hazards()
    assert {"S1", "S2", "S3", "S4", "S5", "S6"} <= built
    assert marked("hazard") == built
    assert {"G1", "I2", "F1"} <= absent


def test_every_hazard_has_a_mutation() -> None:
    rules = {tomllib.loads(file.read_text())["rule"] for file in (ROOT / "tests" / "mutations").glob("*.toml")}
    built, _ = hazards()
    assert built <= rules


def test_the_support_matrix_is_current() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "support_matrix.py"), "--check"])
    assert done.returncode == 0, "run `python tools/support_matrix.py`"


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    reasons = (ROOT / "docs" / "dependencies.md").read_text()
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    for requirement in wanted:
        name = re.match(r"[\w-]+", requirement)
        assert name is not None
        assert re.search(rf"\b{re.escape(name[0])}\b", reasons), name[0]


def test_links_lead_somewhere() -> None:
    for file in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "specs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", file.read_text()):
            assert (file.parent / target).exists(), f"{file.name} links to {target}"


def test_the_two_commands_are_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme
