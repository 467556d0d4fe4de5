"""What a bench of ingest prints beside its results."""

from __future__ import annotations

from collections.abc import Iterable

from bench.measure import Result


def note(text: str) -> None:
    """Something worth knowing that has no goal."""
    print(f"    {text}", flush=True)


def show(results: Iterable[Result]) -> None:
    """The results of a bench that is run alone, perhaps smaller."""
    for each in results:
        print(f"{each.name:30} {each.ours:12,.1f} {each.peer:12,.1f} {each.ratio:7.2f} {each.goal:6.2f} {each.unit}")
