"""What can go wrong with URIs and rules, told apart by what the caller may do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.kernel.errors import ConflictError, OutcomeUnknownError, RefusedError, UsageError


class InvalidUriError(UsageError):
    """The URI cannot name an object that we could copy."""

    def __init__(self, uri: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{uri!r} cannot be used: {reason}", hint=hint, uri=uri, reason=reason)
        self.reason = reason


@dataclass(frozen=True)
class Mistake:
    """What is wrong with a registry, and where: `line` is from 1, or 0 without a text; `at` is a path of keys."""

    line: int
    at: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.at}: {self.message}" if self.at else f"{where}{self.message}"


class RegistryInvalidError(UsageError):
    """The registry breaks its rules; `mistakes` has all of them, in the order of their lines."""

    def __init__(self, name: str, mistakes: Sequence[Mistake]) -> None:
        first = mistakes[0]
        lines = [f"{each} ({each.hint})" if each.hint and len(mistakes) > 1 else str(each) for each in mistakes]
        message = f"{name}: {lines[0]}" if len(lines) == 1 else "\n".join([f"{name}: {len(lines)} mistakes", *lines])
        told = [{"line": each.line, "at": each.at, "message": each.message, "hint": each.hint} for each in mistakes]
        hint = first.hint if len(lines) == 1 else None
        super().__init__(message, hint=hint, path=name, line=first.line, mistakes=told)
        self.mistakes = tuple(mistakes)


class NoRuleError(UsageError):
    """No source and no override of the registry covers this URI."""

    def __init__(self, uri: str, region: str) -> None:
        super().__init__(
            f"no rule of the registry covers {uri}, seen from {region}",
            hint="add its prefix to sources, and publish the registry",
            uri=uri,
            region=region,
        )


class UnknownRegionError(UsageError):
    """The registry has no region of this name."""

    def __init__(self, region: str, known: Sequence[str]) -> None:
        super().__init__(
            f"the registry has no region {region!r}", hint=f"regions are {', '.join(known)}", region=region
        )


class MisplacedError(RefusedError):
    """The destination of a URI lies where nothing may be copied to."""

    def __init__(self, uri: str, destination: str, rule: str, reason: str, *, hint: str) -> None:
        super().__init__(
            f"{uri} would go to {destination} by {rule}: {reason}",
            hint=hint,
            uri=uri,
            destination=destination,
            rule=rule,
        )


class CollisionError(RefusedError):
    """Two objects would have one destination (hazard R6): a copy of one would stand for the other."""

    def __init__(self, destination: str, first: tuple[str, str], second: tuple[str, str]) -> None:
        super().__init__(
            f"{first[0]} (by {first[1]}) and {second[0]} (by {second[1]}) would both be {destination}",
            hint="rename one of them, or keep one of the two prefixes where it is by an override",
            destination=destination,
            uris=[first[0], second[0]],
            rules=[first[1], second[1]],
        )


class RegistryConflictError(ConflictError):
    """Somebody else published; it is proven that our generation is not, and will not be, in force."""

    def __init__(self, message: str, *, generation: int, hint: str) -> None:
        super().__init__(message, hint=hint, generation=generation)
        self.generation = generation


class RegistryOutcomeUnknownError(OutcomeUnknownError):
    """Whether our generation is in force cannot be told yet."""

    def __init__(self, generation: int, operation: str, reason: str) -> None:
        super().__init__(
            f"whether registry generation {generation} was published is not known: {reason}",
            operation=operation,
            hint="`headwater registry show` tells what is in force: look there before publishing again",
            generation=generation,
        )


class NoRegistryError(UsageError):
    """Nothing was ever published here, or nothing that is in force yet."""


class RunEndedError(ConflictError):
    """The run's claims have lapsed, or another attempt took the run over: what it relied on may be gone."""

    def __init__(self, run: str, region: str, reason: str) -> None:
        super().__init__(
            f"the claims of run {run} in {region} do not hold: {reason}",
            hint="begin a new run: it claims and verifies again",
            run=run,
            region=region,
        )
