"""`headwater token` and `headwater serve`, as a person or a script meets them."""

from __future__ import annotations

import json
import sys

import pytest

from headwater.access import Role, Tokens
from tests.cli.test_cli import Run, run
from tests.fixtures.lakes import LakeWorld

__all__ = ["run"]  # the fixture


def test_tokens_are_made_listed_and_revoked(run: Run, lake: LakeWorld) -> None:
    assert run("token", "list", lake.url).out == "there are none\n"
    made = run("token", "create", lake.url, "ann", "--role", "writer", "--json").json()
    assert (made["name"], made["role"]) == ("ann", "writer")
    plain = run("token", "create", lake.url, "bob")
    assert plain.out.startswith("hw_")
    assert "not shown again" in plain.err
    with lake.app.open_database(lake.url) as database:
        tokens = Tokens(database, lake.app.randomness)
        assert tokens.caller(made["token"]).actor == "ann"
        assert tokens.caller(plain.out.strip()).role is Role.READER
    assert run("token", "create", lake.url, "ann").code == 3
    assert run("token", "create", lake.url, "an n").code == 2
    listed = run("token", "list", lake.url)
    assert "ann" in listed.out
    assert made["token"].split("_", 2)[2] not in listed.out
    assert run("token", "revoke", lake.url, "ann").out == "revoked ann\n"
    assert run("token", "revoke", lake.url, "ann").code == 2
    assert run("token", "revoke", lake.url, "bob", "--json").json()["revoked_at"]
    assert len(json.loads(run("token", "list", lake.url, "--json").out)) == 2


def test_what_is_no_lake_gets_no_tokens(run: Run, lake: LakeWorld) -> None:
    assert run("token", "create", f"{lake.url}-not", "ann").code == 2


def test_what_is_not_served(run: Run, lake: LakeWorld) -> None:
    refused = run("serve", lake.url, "--host", "0.0.0.0", "--port", "0")
    assert refused.code == 4
    assert "headwater token create" in refused.err
    assert run("serve", lake.url, "--tls-key", "x").code == 2
    missing = run("serve", lake.url, "--tls-key", "x", "--tls-certificate", "y", "--port", "0")
    assert missing.code == 2


def test_a_server_that_is_not_installed_is_told_in_one_sentence(
    run: Run, lake: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("headwater.server.main")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    told = run("serve", lake.url, "--port", "0")
    assert told.code == 5
    assert told.err.splitlines() == [
        "error: the server needs uvicorn, which is not installed",
        "  way out: pip install 'headwater[server]'",
    ]
