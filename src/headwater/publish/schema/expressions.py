"""Conditions of CHECK constraints: which columns they speak of, what they become when one is renamed."""

from __future__ import annotations

from collections.abc import Collection

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headwater.kernel.errors import UsageError
from headwater.publish.constraints.model import Cardinality, Check
from headwater.publish.schema.places import Place
from headwater.publish.schema.words import wrong
from headwater.publish.sql.dialect import AsWritten, said

# Functions whose value depends on who asks, when, or how often; those that begin with `current_` are others like them.
_FICKLE = (exp.Rand, exp.Uuid)
_FICKLE_NAMES = frozenset(
    {"random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "nextval", "currval", "txid_current"}
    | {"now", "today", "transaction_timestamp", "get_current_time", "get_current_timestamp"}
    | {"localtime", "localtimestamp", "session_user", "getvariable", "getenv", "pg_backend_pid"}
)

_BOUNDS: dict[type[exp.Expr], str] = {exp.LTE: "<=", exp.LT: "<", exp.GTE: ">=", exp.GT: ">", exp.EQ: "="}


def read_check(name: str, text: str, at: Place) -> Check | Cardinality:
    """The constraint that a CHECK says: one on the values of a row, or on how many rows share some of them."""
    try:
        tree = sqlglot.parse_one(text, dialect=AsWritten)
    except SqlglotError as error:
        found = (getattr(error, "errors", None) or [{}])[0]
        what = str(found.get("description") or str(error).splitlines()[0])
        if what.startswith("Required keyword"):  # sqlglot names its own classes then
            what = "something is missing"
        raise wrong(f"the condition cannot be read: {what}", _within(at, found)) from None
    window = tree.find(exp.Window)
    if window is not None:
        counted = _cardinality(name, tree, window)
        if counted is None:
            raise wrong(
                "a CHECK looks at one row, or counts rows",
                at,
                "CHECK (count(*) OVER (PARTITION BY a, b) <= 5), or BETWEEN 1 AND 5",
            )
        return counted
    for kind, what in ((exp.Query, "a subquery"), (exp.AggFunc, "an aggregate")):
        if tree.find(kind) is not None:
            raise wrong(f"a CHECK looks at one row, and {what} at many", at, "say it as a foreign key, or count rows")
    if (fickle := next((each for each in tree.find_all(exp.Func) if _is_fickle(each)), None)) is not None:
        raise wrong(
            f"{said(fickle)} is another value each time",
            at,
            "a CHECK must stay true of a row that does not change",
        )
    return Check(name, said(tree))


def _is_fickle(function: exp.Func) -> bool:
    name = (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).lower()
    if name == "age":  # of one moment it is counted from today
        return len(function.expressions) == 1
    return isinstance(function, _FICKLE) or name in _FICKLE_NAMES or name.startswith("current_")


def _within(at: Place, found: dict[str, object]) -> Place:
    line, column = found.get("line"), found.get("col")
    if not isinstance(line, int) or not isinstance(column, int):
        return at
    return Place(at.line, at.column + column - 1) if line == 1 else Place(at.line + line - 1, column)


def _cardinality(name: str, tree: exp.Expr, window: exp.Window) -> Cardinality | None:
    """How many rows may share values, if that is what the condition is about and nothing else."""
    columns = window.args.get("partition_by") or ()
    plain = (
        isinstance(window.this, exp.Count)
        and isinstance(window.this.this, exp.Star)
        and bool(columns)
        and not window.args.get("order")
        and not window.args.get("spec")
        and all(isinstance(each, exp.Column) and not each.table for each in columns)
    )
    if not plain:
        return None
    names = tuple(each.name for each in columns)
    if isinstance(tree, exp.Between) and tree.this is window:
        low, high = _whole(tree.args["low"]), _whole(tree.args["high"])
        return None if low is None or high is None or low > high else Cardinality(name, names, low, high)
    if type(tree) not in _BOUNDS or tree.this is not window:
        return None
    bound = _whole(tree.expression)
    if bound is None:
        return None
    match _BOUNDS[type(tree)]:
        case "<=":
            return Cardinality(name, names, 0, bound) if bound > 0 else None
        case "<":
            return Cardinality(name, names, 0, bound - 1) if bound > 1 else None
        case ">=":
            return Cardinality(name, names, bound, None)
        case ">":
            return Cardinality(name, names, bound + 1, None)
        case _:
            return Cardinality(name, names, bound, bound) if bound > 0 else None


def _whole(tree: exp.Expr) -> int | None:
    return int(tree.this) if isinstance(tree, exp.Literal) and not tree.is_string and tree.this.isdecimal() else None


def cardinality_text(constraint: Cardinality, columns: str) -> str:
    """The condition that says a cardinality; `columns` are its columns as a script writes them."""
    count = f"count(*) OVER (PARTITION BY {columns})"
    if constraint.at_most is None:
        return f"{count} >= {constraint.at_least}"
    if constraint.at_least == 0:
        return f"{count} <= {constraint.at_most}"
    return f"{count} BETWEEN {constraint.at_least} AND {constraint.at_most}"


def settled(check: Check, table: str, columns: Collection[str]) -> Check:
    """The condition with columns spelled as the table spells them, and without the table's own name before them."""
    tree = sqlglot.parse_one(check.expression, dialect=AsWritten)
    for column in _columns(tree):
        parts = list(column.parts)
        if len(parts) > 1 and _spelled(parts[0].name, columns) is None and parts[0].name.lower() == table.lower():
            parts = parts[1:]
        head = _spelled(parts[0].name, columns)
        if head is None:
            raise UsageError(
                f"constraint {check.name} speaks of {'.'.join(part.name for part in parts)}, which is no column",
                hint=f"the columns are {', '.join(columns)}",
                constraint=check.name,
            )
        replacement: exp.Expr = exp.column(exp.to_identifier(head, quoted=True))
        for part in parts[1:]:
            replacement = exp.Dot(this=replacement, expression=exp.to_identifier(part.name, quoted=True))
        tree = replacement if column is tree else tree
        column.replace(replacement)
    return Check(check.name, said(tree))


def with_renamed(check: Check, old: str, new: str) -> Check:
    """The same condition, when a column has got another name."""
    tree = sqlglot.parse_one(check.expression, dialect=AsWritten)
    for column in _columns(tree):
        first = column.parts[0]
        if first.name == old:
            first.replace(exp.to_identifier(new, quoted=True))
    return Check(check.name, said(tree))


def _columns(tree: exp.Expr) -> list[exp.Column]:
    return list(tree.find_all(exp.Column))


def _spelled(name: str, columns: Collection[str]) -> str | None:
    if name in columns:
        return name
    return next((each for each in columns if each.lower() == name.lower()), None)
