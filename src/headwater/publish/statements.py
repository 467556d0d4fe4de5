"""SQL that changes tables, parsed before anything runs: INSERT, UPDATE, DELETE and MERGE, each as one typed statement.

What a statement needs to know of rows it asks by SELECTs, which `query/` runs over committed and pending rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from headwater.catalog.model import TableKey
from headwater.catalog.names import DEFAULT_NAMESPACE
from headwater.kernel.errors import UsageError

DIALECT = "duckdb"


class StatementError(UsageError):
    """The SQL is not a statement that can be run in a transaction; says where."""


@dataclass(frozen=True)
class Insert:
    """Add rows: `columns` are those that the source gives, all of them when None."""

    table: TableKey
    columns: tuple[str, ...] | None
    source: str


@dataclass(frozen=True)
class Update:
    """Set columns of the rows that match; `others` is the SQL of what else the FROM names."""

    table: TableKey
    alias: str
    settings: tuple[tuple[str, str], ...]
    others: str
    where: str | None


@dataclass(frozen=True)
class DeleteRows:
    """Delete the rows that match."""

    table: TableKey
    alias: str
    others: str
    where: str | None


@dataclass(frozen=True)
class When:
    """One WHEN of a merge. `settings` of an update or insert; None deletes. An insert is of rows without a match."""

    matched: bool
    condition: str | None
    settings: tuple[tuple[str, str], ...] | None
    all_columns: bool = False


@dataclass(frozen=True)
class Merge:
    """Lay a source over a table."""

    table: TableKey
    alias: str
    source: str
    source_alias: str
    on: str
    whens: tuple[When, ...]


Statement = Insert | Update | DeleteRows | Merge


def parse(sql: str) -> Statement:
    """The one statement that the SQL holds."""
    try:
        trees = [tree for tree in sqlglot.parse(sql, dialect=DIALECT) if tree is not None]
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        line, column = first.get("line"), first.get("col")
        where = f" (at {line}:{column})" if line is not None else ""
        raise StatementError(
            f"{first.get('description') or 'the SQL cannot be parsed'}{where}", line=line, column=column
        ) from error
    except TokenError as error:
        raise StatementError(str(error)) from error
    if len(trees) != 1:
        raise StatementError(f"{len(trees)} statements were given", hint="give them one at a time")
    [tree] = trees
    if tree.args.get("with_") or tree.args.get("with"):
        raise StatementError("a WITH in front of a change is not supported", hint="put it into the SELECT inside")
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
    if tree.args.get("conflict"):
        raise StatementError("ON CONFLICT is not supported", hint="use MERGE")
    target, columns = tree.this, None
    if isinstance(target, exp.Schema):
        columns = tuple(each.name for each in target.expressions)
        target = target.this
    source = tree.expression
    if source is None:
        raise StatementError("INSERT needs VALUES or a SELECT")
    return Insert(_key(target), columns, _sql(source))


def _update(tree: exp.Update) -> Update:
    others = tree.args.get("from_") or tree.args.get("from")
    return Update(
        _key(tree.this),
        _alias(tree.this),
        tuple(_setting(each) for each in tree.expressions),
        _sql(others.this) if others else "",
        _where(tree),
    )


def _delete(tree: exp.Delete) -> DeleteRows:
    using = tree.args.get("using")
    return DeleteRows(
        _key(tree.this), _alias(tree.this), ", ".join(_sql(each) for each in using) if using else "", _where(tree)
    )


def _merge(tree: exp.Merge) -> Merge:
    source = tree.args["using"]
    on = tree.args.get("on")
    if on is None:
        raise StatementError("MERGE needs ON")
    whens = tree.args.get("whens")
    return Merge(
        _key(tree.this),
        _alias(tree.this),
        _sql(source),
        source.alias_or_name,
        _sql(on),
        tuple(_when(each) for each in (whens.expressions if whens else ())),
    )


def _when(tree: exp.Expression) -> When:
    if tree.args.get("source"):
        raise StatementError("WHEN NOT MATCHED BY SOURCE is not supported", hint="follow the MERGE by a DELETE")
    matched, condition, then = bool(tree.args.get("matched")), tree.args.get("condition"), tree.args.get("then")
    text = _sql(condition) if condition is not None else None
    match then:
        case exp.Update():
            return When(matched, text, tuple(_setting(each) for each in then.expressions), not then.expressions)
        case exp.Insert():
            names = then.this.expressions if isinstance(then.this, exp.Tuple) else ()
            values = then.expression.expressions if isinstance(then.expression, exp.Tuple) else ()
            if names and len(names) != len(values):
                raise StatementError(f"INSERT names {len(names)} columns and gives {len(values)} values")
            if values and not names:
                return When(matched, text, tuple(("", _sql(value)) for value in values))
            return When(
                matched,
                text,
                tuple((name.name, _sql(value)) for name, value in zip(names, values, strict=True)),
                not names,
            )
        case exp.Var() if then.name.upper() == "DELETE":
            return When(matched, text, None)
    raise StatementError(f"a MERGE cannot {_sql(then) if then is not None else 'do nothing'}")


def _setting(tree: exp.Expression) -> tuple[str, str]:
    if not isinstance(tree, exp.EQ) or not isinstance(tree.this, exp.Column):
        raise StatementError(f"{_sql(tree)} does not set a column")
    return tree.this.name, _sql(tree.expression)


def _key(tree: exp.Expression) -> TableKey:
    if not isinstance(tree, exp.Table):
        raise StatementError(f"{_sql(tree)} is not a table")
    namespace = tuple(part for part in (tree.catalog, tree.db) if part) or (DEFAULT_NAMESPACE,)
    return TableKey(namespace, tree.name)


def _alias(tree: exp.Expression) -> str:
    return str(tree.alias_or_name)


def _where(tree: exp.Expression) -> str | None:
    where = tree.args.get("where")
    return _sql(where.this) if where is not None else None


def _sql(tree: exp.Expression) -> str:
    return tree.sql(dialect=DIALECT)
