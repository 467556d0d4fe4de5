"""A file that exists in one region only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Output:
    """A file that sync wrote, or is about to write, in a region: its name says what it is made from (hazard R5).

    `digest` is of that recipe, `source` the file that it was made from, `generation` the registry's whose rules it
    follows, `kind` whatever sync calls it.
    """

    region: str
    uri: str
    kind: str
    digest: str
    source: str
    generation: int


def differs(found: Output, wanted: Output) -> bool:
    """Whether one name would stand for two things. The same rules may come in several generations."""
    return (found.kind, found.digest, found.source) != (wanted.kind, wanted.digest, wanted.source)
