"""SQL that changes tables, parsed before anything runs."""

from __future__ import annotations

import pytest

from headwater.catalog.model import TableKey
from headwater.publish.statements import DeleteRows, Insert, Merge, Statement, StatementError, Update, When, parse

T = TableKey.parse("t")


@pytest.mark.parametrize(
    ("sql", "statement"),
    [
        ("insert into t values (1, 'a')", Insert(T, None, "VALUES (1, 'a')")),
        ("insert into a.t (x, Y) select 1, 2", Insert(TableKey.parse("a.t"), ("x", "Y"), "SELECT 1, 2")),
        ("update t set x = x + 1, y = 'b' where z", Update(T, "t", (("x", "x + 1"), ("y", "'b'")), "", "z")),
        ("update t as q set x = s.x from s where s.id = q.id", Update(T, "q", (("x", "s.x"),), "s", "s.id = q.id")),
        ("delete from t", DeleteRows(T, "t", "", None)),
        ("delete from t where x in (select y from s)", DeleteRows(T, "t", "", "x IN (SELECT y FROM s)")),
        (
            (
                "merge into t using s on t.id = s.id when matched and s.gone then delete "
                "when matched then update set v = s.v when not matched then insert (id, v) values (s.id, s.v)"
            ),
            Merge(
                T,
                "t",
                "s",
                "s",
                "t.id = s.id",
                (
                    When(True, "s.gone", None),
                    When(True, None, (("v", "s.v"),)),
                    When(False, None, (("id", "s.id"), ("v", "s.v"))),
                ),
            ),
        ),
    ],
)
def test_statements(sql: str, statement: Statement) -> None:
    assert parse(sql) == statement


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select 1", "SELECT does not change rows"),
        ("insert into t values (1); delete from t", "2 statements"),
        ("", "0 statements"),
        ("update t sett x = 1", "(at 1:"),
        ("insert into t values (1) on conflict do nothing", "ON CONFLICT"),
        ("delete from t returning *", "RETURNING"),
        ("create table t (a int)", "CREATE does not change rows"),
        ("update t set (a, b) = (1, 2)", "does not set a column"),
    ],
)
def test_mistakes(sql: str, said: str) -> None:
    with pytest.raises(StatementError) as caught:
        parse(sql)
    assert said in caught.value.message
