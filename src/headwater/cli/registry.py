"""`headwater registry`: check, publish, look at and roll back the storage registry; ask it about a URI."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from headwater.app import App, location_of
from headwater.cli.lakes import words, words_and
from headwater.cli.output import counted, json_option, print_json, print_table
from headwater.kernel.errors import CorruptError, UsageError
from headwater.kernel.settings import user_name
from headwater.regions.registry import Registry, load_registry
from headwater.regions.registry.codec import to_values
from headwater.regions.resolve import Resolver, sharing, uncovered
from headwater.regions.rollout import Generation, Published

expect_option = click.option(
    "--expect", type=int, metavar="N", help="Only while N is the newest generation; 0 for none."
)


@click.group()
def registry() -> None:
    """The storage registry: where files live in each region."""


@registry.command("validate")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def validate(file: Path, as_json: bool) -> None:
    """Check the registry in FILE, and tell the line of each mistake."""
    found = load_registry(file)
    if as_json:
        shown = {"registry": to_values(found), "sharing": sharing(found), "uncovered": uncovered(found)}
        print_json({"valid": True, **shown})
        return
    click.echo(f"{file} is valid: {_counted(found)}")
    for region, prefixes in sharing(found).items():
        if len(prefixes) > 1:
            click.echo(f"note: in {region} a run refuses files of one name under {', '.join(prefixes)}")
    for name in uncovered(found):
        click.echo(f"note: no source covers {found.region(name).local_prefix}: what is written in {name} stays there")


@registry.command("publish")
@words_and("FILE")
@click.option("--valid-from", metavar="TIME", help="In force from then on, like 2026-11-15T09:30Z; at once by default.")
@expect_option
@json_option
@click.pass_obj
def publish(app: App, words: tuple[str, ...], valid_from: str | None, expect: int | None, as_json: bool) -> None:
    """Publish the registry in FILE as the next generation."""
    lake, (name,) = _split(app, words, "FILE")
    found = load_registry(Path(name))
    _refuse_links(found)
    publisher = app.open_publisher(lake)
    before = publisher.newest()
    moment = None if valid_from is None else _moment(valid_from)
    made = publisher.publish(found, actor=user_name(), valid_from=moment, expected=expect)
    is_new = before is None or made.number > before.pointer.link.generation
    if as_json:
        print_json({**_summary(made), "published": is_new})
    elif is_new:
        click.echo(f"generation {made.number} is published, in force from {made.valid_from.isoformat()} on")
    else:
        click.echo(f"generation {made.number} has these rules already")


@registry.command("show")
@words
@click.option("--generation", type=int, metavar="N", help="That generation, not the one in force.")
@click.option("--history", is_flag=True, help="List the generations, newest first.")
@json_option
@click.pass_obj
def show(app: App, words: tuple[str, ...], generation: int | None, history: bool, as_json: bool) -> None:
    """Print the registry that is in force."""
    lake, _ = _split(app, words)
    published = app.open_registry(lake)
    if history:
        _show_history(app, published, as_json=as_json)
        return
    found = _asked(app, published, generation)
    if as_json:
        print_json({**_summary(found), "registry": to_values(found.registry)})
        return
    _print_generation(found)


@registry.command("rollback")
@words_and("GENERATION")
@expect_option
@json_option
@click.pass_obj
def rollback(app: App, words: tuple[str, ...], expect: int | None, as_json: bool) -> None:
    """Take up the rules of an earlier GENERATION again, as a new generation."""
    lake, (number,) = _split(app, words, "GENERATION")
    if not number.isdecimal():
        raise UsageError(f"{number!r} is not a generation", hint="`headwater registry show --history` lists them")
    made = app.open_publisher(lake).rollback(int(number), actor=user_name(), expected=expect)
    if as_json:
        print_json(_summary(made))
    else:
        click.echo(f"generation {made.number} is published, with the rules of {number}")


@registry.command("resolve")
@words_and("URI")
@click.option("--region", required=True, metavar="R", help="The region that asks.")
@click.option("--file", type=click.Path(path_type=Path), help="Ask this file, not the published registry.")
@json_option
@click.pass_obj
def resolve(app: App, words: tuple[str, ...], region: str, file: Path | None, as_json: bool) -> None:
    """Print where the file at URI has its place in a region, and by which rule."""
    lake, (uri,) = _split(app, words, "URI", needs_lake=file is None)
    number: int | None = None
    if file is not None:
        rules = load_registry(file)
    else:
        found = app.open_registry(lake).in_force(app.clock.now())
        rules, number = found.registry, found.number
    answer = Resolver(rules, region).resolve(uri)
    if as_json:
        print_json(
            {
                "uri": uri,
                "source": answer.source,
                "destination": answer.destination,
                "region": answer.region,
                "rule": {"kind": str(answer.rule.kind), "prefix": answer.rule.prefix},
                "is_local": answer.is_local,
                "is_elsewhere": answer.is_elsewhere,
                "must_copy": answer.must_copy,
                "generation": number,
            }
        )
        return
    click.echo(answer.destination)
    click.echo(f"by {answer.rule}", err=True)


def _split(
    app: App, words: tuple[str, ...], *names: str, needs_lake: bool = True
) -> tuple[str | None, tuple[str, ...]]:
    """The lake, which is not needed where the settings name the registry, and the other words."""
    if len(words) == len(names) + 1:
        return words[0], words[1:]
    if len(words) == len(names) and (app.settings.lake or app.settings.registry or not needs_lake):
        return app.settings.lake, words
    shape = " ".join(["[LAKE]", *names])
    raise UsageError(
        f"{counted(len(words), 'word')} given",
        hint=f"give {shape}; `registry` or `lake` can be set in headwater.toml",
    )


def _refuse_links(rules: Registry) -> None:
    """A folder is named by where it is: that is how tables name their files, and no rule would cover them."""
    overrides = [each.match_from for each in rules.overrides]
    for prefix in (*(each.local_prefix for each in rules.regions), *rules.sources, *overrides):
        if prefix.startswith("file:") and (real := f"{location_of(prefix)}/") != prefix:
            raise UsageError(f"{prefix} leads through a link to {real}", hint=f"write {real}", path=prefix)


def _asked(app: App, published: Published, number: int | None) -> Generation:
    if number is None:
        return published.in_force(app.clock.now())
    return published.find(published.newest_or_refuse().pointer, number)


def _show_history(app: App, published: Published, *, as_json: bool) -> None:
    newest = published.newest()
    everything: list[Generation] = []
    broken: CorruptError | None = None
    try:
        everything += [] if newest is None else published.history(newest.pointer)
    except CorruptError as error:
        broken = error  # those before it cannot be reached; those after it are shown all the same
    if as_json:
        print_json([_summary(each) for each in everything])
    elif newest is None:
        click.echo("nothing was published here")
    elif everything:
        _print_history(everything, app.clock.now())
    if broken is not None:
        raise broken


def _print_history(everything: list[Generation], now: datetime) -> None:
    current = next((each.number for each in everything if each.valid_from <= now), None)
    rows = [
        (
            each.number,
            "in force" if each.number == current else "later" if each.valid_from > now else "",
            each.valid_from.isoformat(timespec="seconds"),
            each.actor,
            f"rules of {each.restores}" if each.restores else "",
        )
        for each in everything
    ]
    print_table(("generation", "state", "valid from", "actor", "note"), rows)


def _print_generation(found: Generation) -> None:
    rules = found.registry
    click.echo(f"generation {found.number}, from {found.valid_from.isoformat()} on: {_counted(rules)}")
    click.echo()
    regions = [(each.name, each.local_prefix, each.branch) for each in rules.regions]
    print_table(("region", "local prefix", "branch"), regions)
    click.echo()
    print_table(("source",), [(each,) for each in rules.sources])
    policy = rules.dest_policy
    promise = "" if policy.ensure_local_prefix else ", and need not be local to be read"
    click.echo(f"they go to {policy.region or 'the region that asks'}{promise}")
    if rules.overrides:
        click.echo()
        rows = [(each.match_from, each.to_region, each.reason) for each in rules.overrides]
        print_table(("override", "to region", "reason"), rows)


def _summary(found: Generation) -> dict[str, object]:
    return {
        "generation": found.number,
        "writer": found.writer,
        "actor": found.actor,
        "published_at": found.published_at,
        "valid_from": found.valid_from,
        "restores": found.restores,
    }


def _counted(rules: Registry) -> str:
    parts = (counted(len(rules.regions), "region"), counted(len(rules.sources), "source"))
    return ", ".join((*parts, counted(len(rules.overrides), "override")))


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise UsageError(f"{text!r} is not a moment with its zone", hint="like 2026-11-15T09:30Z")
    return found
