"""SQL that changes tables, parsed before anything runs.

A part of the syntax that is not understood is refused: one that was left out would change other rows than its author
meant.
"""

from __future__ import annotations

import re
from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from headwater.catalog.model import TableKey
from headwater.catalog.names import DEFAULT_NAMESPACE
from headwater.publish.sql.dialect import AsWritten, said
from headwater.publish.sql.statements import DeleteRows, Insert, Merge, Statement, StatementError, Update, When
from headwater.query.types import name

# What may give other rows each time.
_FICKLE = (exp.Rand, exp.Uuid, exp.Limit, exp.TableSample)
_OPEN = re.compile(r" from \d+:(\d+)$")


def parse(sql: str) -> Statement:
    """The one statement that the SQL holds."""
    try:
        return _statement(_tree(sql))
    except RecursionError:
        raise StatementError("the statement is nested too deeply", hint="split it into several") from None


def _tree(sql: str) -> exp.Expr:
    try:
        trees = [tree for tree in sqlglot.parse(sql, dialect=AsWritten) if tree is not None]
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        what = str(first.get("description") or "the SQL cannot be parsed")
        if what.startswith("Required keyword"):  # sqlglot names its own classes then
            what = "something is missing"
        raise _wrong(what, first.get("line"), first.get("col")) from error
    except TokenError as error:
        raise _not_closed(sql, error) from error
    if len(trees) != 1:
        raise StatementError(f"{len(trees)} statements were given", hint="give them one at a time")
    return trees[0]


def _wrong(what: str, line: int | None, column: int | None, hint: str | None = None) -> StatementError:
    where = f" (at {line}:{column})" if line is not None else ""
    return StatementError(f"{what}{where}", hint=hint, line=line, column=column)


def _not_closed(sql: str, error: TokenError) -> StatementError:
    """What begins with a quotation mark or as a comment, and does not end."""
    found = _OPEN.search(str(error.__cause__))
    before = sql[: int(found[1])] if found else sql
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return _wrong("a text, name or comment does not end", line, column, hint="look for a quotation mark that is open")


def _statement(tree: exp.Expr) -> Statement:
    if tree.args.get("returning"):
        raise StatementError("RETURNING is not supported", hint="query the rows in the same transaction")
    match tree:
        case exp.Insert():
            return _insert(tree)
        case exp.Update():
            return _update(tree)
        case exp.Delete():
            return _delete(tree)
        case exp.Merge():
            return _merge(tree)
    raise StatementError(
        f"{tree.key.upper()} does not change rows", hint="a transaction takes INSERT, UPDATE, DELETE and MERGE"
    )


def _insert(tree: exp.Insert) -> Insert:
    if tree.args.get("conflict") or tree.args.get("alternative"):
        raise StatementError("ON CONFLICT is not supported", hint="use MERGE")
    _refuse_others(tree, "this", "expression", "by_name")
    target, columns = tree.this, None
    if isinstance(target, exp.Schema):
        columns = tuple(column for column, _ in _each_once(tuple((each.name, "") for each in target.expressions)))
        target = target.this
    source = tree.expression
    if source is None:
        raise StatementError("INSERT needs VALUES or a SELECT")
    return Insert(_key(target), columns, said(source), bool(tree.args.get("by_name")), _given(tree))


def _update(tree: exp.Update) -> Update:
    _refuse_others(tree, "this", "expressions", "from_", "where")
    _shorten(tree)
    others = tree.args.get("from_")
    return Update(
        _key(tree.this),
        _alias(tree.this),
        _settings(tree, _alias(tree.this)),
        said(others.this) if others else "",
        _where(tree),
        _given(tree),
    )


def _delete(tree: exp.Delete) -> DeleteRows:
    _refuse_others(tree, "this", "using", "where")
    _shorten(tree)
    using = tree.args.get("using") or ()
    return DeleteRows(
        _key(tree.this), _alias(tree.this), ", ".join(said(each) for each in using), _where(tree), _given(tree)
    )


def _merge(tree: exp.Merge) -> Merge:
    _refuse_others(tree, "this", "using", "on", "using_cond", "whens")
    _shorten(tree)
    source, alias = tree.args["using"], _alias(tree.this)
    if not source.alias_or_name:
        source.set("alias", exp.TableAlias(this=exp.to_identifier("source")))
    whens = tree.args.get("whens")
    clauses = tuple(_when(each, alias) for each in (whens.expressions if whens else ()))
    _refuse_unreached(clauses)
    return Merge(
        _key(tree.this),
        alias,
        said(source),
        source.alias_or_name,
        _on(tree, alias, source.alias_or_name),
        clauses,
        _given(tree),
        is_fickle=any(each is not None and each.find(*_FICKLE) for each in (source, tree.args.get("with_"))),
    )


def _on(tree: exp.Merge, alias: str, source_alias: str) -> str:
    if on := tree.args.get("on"):
        return said(on)
    shared = [each.name for each in tree.args.get("using_cond") or ()]
    if not shared:
        raise StatementError("MERGE needs ON")
    return " AND ".join(f"{name(alias)}.{name(each)} = {name(source_alias)}.{name(each)}" for each in shared)


def _refuse_unreached(whens: tuple[When, ...]) -> None:
    """Behind a WHEN without a condition, another of its kind would never be asked."""
    for place, when in enumerate(whens):
        if any(each.kind == when.kind and each.condition is None for each in whens[:place]):
            raise StatementError(
                f"WHEN number {place + 1} is never reached: one before it is of the same kind, and has no condition",
                hint="put the one without a condition last",
            )


def _when(tree: exp.Expression, alias: str) -> When:
    condition, then = tree.args.get("condition"), tree.args.get("then")
    blank = When(
        bool(tree.args.get("matched")),
        said(condition) if condition is not None else None,
        (),
        by_source=bool(tree.args.get("source")),
    )
    match then:
        case exp.Var() if then.name.upper() == "DO NOTHING":
            return replace(blank, does_nothing=True)
        case exp.Var() if then.name.upper() == "DELETE" and blank.finds_rows:
            return replace(blank, settings=None)
        case exp.Update() if blank.finds_rows:
            if blank.matched and (not then.expressions or isinstance(then.expressions[0], exp.Star)):
                return replace(blank, all_columns=True)
            return replace(blank, settings=_settings(then, alias))
        case exp.Insert() if not blank.finds_rows:
            return _when_inserting(then, blank)
    which = "WHEN NOT MATCHED" if not blank.finds_rows else "WHEN MATCHED"
    raise StatementError(f"{which} cannot {said(then) if then is not None else 'be left open'}")


def _when_inserting(then: exp.Insert, blank: When) -> When:
    _refuse_others(then, "this", "expression")
    names = then.this.expressions if isinstance(then.this, exp.Tuple) else ()
    values = then.expression.expressions if isinstance(then.expression, exp.Tuple) else ()
    if not names and not values:
        return replace(blank, all_columns=True)
    if not names:
        return replace(blank, settings=tuple(("", said(value)) for value in values))
    if len(names) != len(values):
        raise StatementError(f"INSERT names {len(names)} columns and gives {len(values)} values")
    settings = tuple((each.name, said(value)) for each, value in zip(names, values, strict=True))
    return replace(blank, settings=_each_once(settings))


def _settings(tree: exp.Expression, alias: str) -> tuple[tuple[str, str], ...]:
    return _each_once(tuple(_setting(each, alias) for each in tree.expressions))


def _setting(tree: exp.Expression, alias: str) -> tuple[str, str]:
    if not isinstance(tree, exp.EQ) or not isinstance(tree.this, exp.Column):
        raise StatementError(f"{said(tree)} does not set a column")
    if tree.this.table and tree.this.table.lower() != alias.lower():
        raise StatementError(
            f"{said(tree.this)} is no column of {alias}", hint="set a whole column; a part of one cannot be set"
        )
    return tree.this.name, said(tree.expression)


def _each_once(settings: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    seen: set[str] = set()
    for column, _ in settings:
        if column.lower() in seen:
            raise StatementError(f"column {column} is given twice", column=column)
        seen.add(column.lower())
    return settings


def _key(tree: exp.Expression) -> TableKey:
    if not isinstance(tree, exp.Table):
        raise StatementError(f"{said(tree)} is not a table")
    _refuse_others(tree, "this", "db", "catalog", "alias")
    *namespace, table = (part.name for part in tree.parts)
    parts = tuple(each for part in namespace for each in part.split("."))
    return TableKey(parts or (DEFAULT_NAMESPACE,), table)


def _shorten(tree: exp.Expr) -> None:
    """Columns that are named by the whole name of the table, as `a.t.x`, by its last part: so a SELECT calls it."""
    target = tree.this
    if not isinstance(target, exp.Table) or target.alias:
        return
    whole = _names(target)
    tables = [each for each in tree.find_all(exp.Table) if each is not target]
    if any(each.alias_or_name.lower() == whole[-1] and _names(each) != whole for each in tables):
        return
    for column in tree.find_all(exp.Column):
        if _names(column)[:-1] == whole:
            column.set("db", None)
            column.set("catalog", None)


def _names(tree: exp.Table | exp.Column) -> list[str]:
    return [part.name.lower() for part in tree.parts]


def _refuse_others(tree: exp.Expression, *known: str) -> None:
    """Whatever else the statement says would change what it means."""
    for key, value in tree.args.items():
        if value and key not in known and key != "with_":
            shown = key.strip("_").replace("_", " ").upper()
            raise StatementError(f"{tree.key.upper()} with {shown} is not supported", hint="say it in another way")


def _given(tree: exp.Expression) -> str:
    given = tree.args.get("with_")
    return f"{said(given)} " if given is not None else ""


def _alias(tree: exp.Expression) -> str:
    return str(tree.alias_or_name)


def _where(tree: exp.Expression) -> str | None:
    where = tree.args.get("where")
    return said(where.this) if where is not None else None
