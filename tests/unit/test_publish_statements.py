"""SQL that changes tables, parsed before anything runs."""

from __future__ import annotations

import pytest

from headwater.catalog.model import TableKey
from headwater.kernel.errors import UsageError
from headwater.publish.sql.parsing import parse
from headwater.publish.sql.statements import DeleteRows, Insert, Merge, Statement, StatementError, Update, When

T = TableKey.parse("t")


@pytest.mark.parametrize(
    ("sql", "statement"),
    [
        ("insert into t values (1, 'a')", Insert(T, None, "VALUES (1, 'a')")),
        ("insert into a.t (x, Y) select 1, 2", Insert(TableKey.parse("a.t"), ("x", "Y"), "SELECT 1, 2")),
        ("update t set x = x + 1, y = 'b' where z", Update(T, "t", (("x", "x + 1"), ("y", "'b'")), "", "z")),
        ("update t as q set x = s.x from s where s.id = q.id", Update(T, "q", (("x", "s.x"),), "s", "s.id = q.id")),
        ("insert into t by name select 1 as x", Insert(T, None, "SELECT 1 AS x", by_name=True)),
        (
            "with s as (select 1) insert into t select * from s",
            Insert(T, None, "SELECT * FROM s", given="WITH s AS (SELECT 1) "),
        ),
        ("with s as (select 1) delete from t", DeleteRows(T, "t", "", None, "WITH s AS (SELECT 1) ")),
        ("update t q set Q.x = 1", Update(T, "q", (("x", "1"),), "", None)),
        ('delete from "a.b".c.t', DeleteRows(TableKey(("a", "b", "c"), "t"), "t", "", None)),
        (
            "merge into t using s using (id) when matched then delete",
            Merge(T, "t", "s", "s", '"t"."id" = "s"."id"', (When(True, None, None),)),
        ),
        (
            "update a.t set x = A.T.y where a.t.z in (select a.t.z from a.t)",
            Update(TableKey.parse("a.t"), "t", (("x", "T.y"),), "", "t.z IN (SELECT t.z FROM a.t)"),
        ),
        (
            "delete from a.t where exists (select 1 from b.t where a.t.z = 1)",
            DeleteRows(TableKey.parse("a.t"), "t", "", "EXISTS(SELECT 1 FROM b.t WHERE a.t.z = 1)"),
        ),
        (
            "merge into t using (select 1 as id) using (id) when matched then delete",
            Merge(
                T, "t", "(SELECT 1 AS id) AS source", "source", '"t"."id" = "source"."id"', (When(True, None, None),)
            ),
        ),
        ("delete from t where j ->> 'a.b' = 1", DeleteRows(T, "t", "", "(j ->> 'a.b') = 1")),
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
        ("update t set a = 1, A = 2", "column A is given twice"),
        ("update t set s.a = 1", "s.a is no column of t"),
        ("update t set a = 1 limit 2", "UPDATE with LIMIT is not supported"),
        ("update t set a = 1 order by b", "UPDATE with ORDER is not supported"),
        ("update t join s on t.id = s.id set a = 1", "TABLE with JOINS is not supported"),
        ("delete from t where a limit 1", "DELETE with LIMIT is not supported"),
        ("delete t from t join s", "DELETE with TABLES is not supported"),
        ("insert into t (a, a) values (1, 2)", "column a is given twice"),
        ("insert or replace into t values (1)", "ON CONFLICT"),
        ("insert overwrite into t select 1", "INSERT with OVERWRITE is not supported"),
        ("insert into t default values", "INSERT with DEFAULT is not supported"),
        ("merge into t using s when matched then delete", "MERGE needs ON"),
        ("merge into t using s on true when matched then insert values (1)", "WHEN MATCHED cannot INSERT"),
        ("merge into t using s on true when not matched then delete", "WHEN NOT MATCHED cannot delete"),
        ("merge into t using s on true when not matched then update set a = 1", "WHEN NOT MATCHED cannot UPDATE"),
        ("merge into t using s on true when not matched by source then update set *", "does not set a column"),
        ("merge into t using s on true when not matched then insert (a, b) values (1)", "2 columns and gives 1 values"),
        ("merge into t using s on true when not matched then insert (a, a) values (1, 2)", "column a is given twice"),
        (
            "merge into t using s on true when matched then delete when matched and t.a then update set a = 1",
            "WHEN number 2 is never reached",
        ),
        ("truncate t", "TRUNCATETABLE does not change rows"),
        ("delete from t\nwhere a = 'x", "does not end (at 2:11)"),
        ("delete from t /* all", "does not end (at 1:"),
        ("delete from t where a =", "something is missing (at 1:"),
        (f"delete from t where {'(' * 5000}true{')' * 5000}", "nested too deeply"),
    ],
)
def test_mistakes(sql: str, said: str) -> None:
    with pytest.raises(StatementError) as caught:
        parse(sql)
    assert said in caught.value.message


def test_what_duckdb_has_no_word_for_is_refused() -> None:
    """sqlglot would leave the format out, and the condition would be about another text."""
    with pytest.raises(UsageError, match="'format' is not supported"):
        parse("delete from t where to_char(at, 'YYYY') = '2024'")
