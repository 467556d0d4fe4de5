"""The walls around heads: a walk through the source finds whoever moves a head or a branch, and knows who may.

A new module that does either fails here. Whatever it wants to change, it makes a `Wish` and lets the publisher have it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "headwater"


@dataclass(frozen=True)
class Wall:
    """Something that only a few modules may do: how it looks, who may, and how it would look in one that may not."""

    name: str
    is_crossed: Callable[[ast.Call], bool]
    allowed: frozenset[str]
    sample: str


def method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def receiver(call: ast.Call) -> str:
    """The last name of what a method is called on: `sequence` in `self._heads.sequence(path).write(…)`."""
    on = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(on, ast.Call):
        on = on.func
    return (on.attr if isinstance(on, ast.Attribute) else on.id if isinstance(on, ast.Name) else "").lstrip("_")


def called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else method(call)


def is_sequenced_write(call: ast.Call) -> bool:
    """`Sequencer.write` or `.move`, which alone take `after`; by position or star, the receiver's name tells."""
    named = {keyword.arg for keyword in call.keywords}
    return method(call) in ("write", "move") and ("after" in named or receiver(call).startswith(("sequence", "head")))


WALLS = (
    Wall(
        "moves a head, or the lake's manifest",
        is_sequenced_write,
        frozenset(
            {
                "sequence/protocol.py",
                "catalog/embedded/open.py",
                "catalog/embedded/protocol.py",
                "catalog/embedded/refs.py",
                "publish/protocol.py",
                "publish/rollback.py",
            }
        ),
        "def f(self): self._heads.sequence(path).write(payload, after=None)",
    ),
    Wall(
        "moves a sequence by a function",
        lambda call: method(call) == "update" and receiver(call).startswith(("sequence", "head")),
        frozenset({"publish/optimize/jobs.py"}),
        "heads.head(path).update(lambda entry: b'')",
    ),
    Wall(
        "gets hold of the sequence of a head",
        lambda call: method(call) == "sequence",
        frozenset(
            {
                "publish/heads.py",
                "publish/protocol.py",
                "publish/rollback.py",
                "publish/drift.py",
                "publish/forks/protocol.py",
                "publish/repair/protocol.py",
            }
        ),
        "latest = lake.writing.heads.sequence(path).latest()",
    ),
    Wall(
        "asks the catalog for a head",
        lambda call: method(call) == "head" and receiver(call) == "heads",
        frozenset({"publish/heads.py"}),
        "catalog.heads.head('tables/t')",
    ),
    Wall(
        "makes a sequence of a table's metadata its own",
        lambda call: called(call) == "head_namespace",
        frozenset({"catalog/embedded/heads.py"}),
        "Sequencer(store, head_namespace('tables/t'))",
    ),
    Wall(
        "makes a request to commit",
        lambda call: called(call) == "CommitRequest",
        # A lake's first commit, changes where there are no heads, and replicas, which nobody else writes.
        frozenset(
            {
                "publish/requests.py",
                "publish/direct/decide.py",
                "catalog/nessie/open.py",
                "sync/promote/protocol.py",
                "sync/observe/heartbeat.py",  # on a branch of its own
            }
        ),
        "request = CommitRequest(branch='main')",
    ),
    Wall(
        "commits",
        lambda call: method(call) in ("commit", "commit_all") and "catalog" in receiver(call),
        frozenset(
            {
                "publish/group.py",
                "publish/recovery.py",
                "publish/direct/protocol.py",
                "catalog/nessie/open.py",
                "sync/promote/protocol.py",
                "sync/observe/heartbeat.py",
            }
        ),
        "self.lake.catalog.commit(request)",
    ),
    Wall(
        "writes a sidecar",
        lambda call: method(call) == "write" and receiver(call) == "sidecars",
        frozenset({"publish/protocol.py", "publish/repair/protocol.py"}),
        "writing.sidecars.write(sidecar)",
    ),
    Wall(
        "raises the staging horizon",
        lambda call: method(call) == "publish_staging_horizon",
        frozenset({"publish/cleanup/protocol.py"}),
        "catalog.publish_staging_horizon(now)",
    ),
)


def crossings(wall: Wall, source: str) -> Iterator[int]:
    """The lines on which a source crosses the wall."""
    return (call.lineno for call in calls_in(source) if wall.is_crossed(call))


@cache
def calls_in(source: str) -> tuple[ast.Call, ...]:
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))


def crossed_in_the_source(wall: Wall) -> dict[str, list[int]]:
    found = {
        str(file.relative_to(ROOT)): list(crossings(wall, file.read_text())) for file in sorted(ROOT.rglob("*.py"))
    }
    return {name: lines for name, lines in found.items() if lines}


@pytest.mark.parametrize("wall", WALLS, ids=lambda wall: wall.name)
class TestWalls:
    def test_only_those_who_may(self, wall: Wall) -> None:
        others = {name: lines for name, lines in crossed_in_the_source(wall).items() if name not in wall.allowed}
        assert not others, f"only {sorted(wall.allowed)} {wall.name}; make a Wish, and let the publisher have it"

    def test_whoever_may_does(self, wall: Wall) -> None:
        """Otherwise a permission outlives its reason."""
        assert wall.allowed <= crossed_in_the_source(wall).keys()

    def test_a_new_module_would_be_found(self, wall: Wall) -> None:
        assert list(crossings(wall, f"x = 1\n{wall.sample}\n")) == [2]


def test_the_walk_is_of_the_source() -> None:
    assert (ROOT / "publish" / "protocol.py").is_file()
    assert len(list(ROOT.rglob("*.py"))) > 100


@pytest.mark.parametrize(
    "source",
    [
        "self._heads.sequence(path).write(payload, None)",
        "sequence.move(payload, after=None).create()",
        "sequencer.write(*everything)",
        "head.write(payload, **options)",
        "with x:\n    def f():\n        return sequence.write(b'', after=latest)",
    ],
)
def test_a_head_is_moved_however_it_is_written(source: str) -> None:
    assert list(crossings(WALLS[0], source))


@pytest.mark.parametrize("source", ["files.write([new])", "sys.stdout.write('after')", "buffer.write(data)"])
def test_a_file_is_no_head(source: str) -> None:
    assert not list(crossings(WALLS[0], source))
