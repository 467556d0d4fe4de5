"""Two hundred clients at once, who read and write by both protocols: no error but lost races and full houses."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from headwater.kernel.clock import SystemClock
from headwater.kernel.randomness import seeded
from tests.unit.server_world import ServedLake
from tests.unit.test_server_process import telling

CLIENTS, SECONDS, TABLES = 200, 30.0, 8
ICEBERG = "/iceberg/v1/main/namespaces/default/tables"

pytestmark = [pytest.mark.proves("server/lake-api"), pytest.mark.slow]


@dataclass
class Heard:
    """What the clients were answered."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    commits: dict[str, str] = field(default_factory=dict)
    rows: Counter[int] = field(default_factory=Counter)
    iceberg: int = 0
    surprises: list[str] = field(default_factory=list)


async def client(number: int, http: httpx.AsyncClient, heard: Heard, until: float) -> None:
    clock, randomness = SystemClock(), seeded(number)
    turn = 0
    while clock.monotonic() < until:
        turn += 1
        table, chance = randomness.randrange(0, TABLES), randomness.random()
        if chance < 0.4:
            kind = "write"
            sql = f"insert into t{table} values ({number * 1_000_000 + turn}, {number})"
            answer = await http.post("/v1/main/mutate", json={"sql": sql})
        elif chance < 0.45:
            kind = "commit"
            update = {"action": "set-properties", "updates": {"by": f"{number}/{turn}"}}
            body: dict[str, object] = {"requirements": [], "updates": [update]}
            answer = await http.post(f"{ICEBERG}/t{table}", json=body)
            heard.iceberg += answer.status_code == 200
        elif chance < 0.55:
            kind = "load"
            answer = await http.get(f"{ICEBERG}/t{table}")
        elif chance < 0.8:
            kind = "read"
            answer = await http.post("/v1/main/query", json={"sql": f"select count(*) as n from t{table}"})
        else:
            kind = "look"
            answer = await http.get(("/v1/main/commits?limit=5", "/v1/main/tables", "/v1/refs")[turn % 3])
        heard.statuses[kind, answer.status_code] += 1
        if kind == "write" and answer.status_code == 200:
            heard.commits[answer.json()["operation"]] = answer.json()["commit"]
            heard.rows[table] += 1
        elif answer.status_code in (409, 429):
            await asyncio.sleep(0.05 + randomness.random() / 5)
        elif answer.status_code != 200:
            heard.surprises.append(f"{kind} {answer.status_code} {answer.text}")


async def crowd(address: str) -> Heard:
    heard, until = Heard(), SystemClock().monotonic() + SECONDS
    limits = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=CLIENTS)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=120) as http:
        await asyncio.gather(*(client(number, http, heard, until) for number in range(CLIENTS)))
    return heard


def test_two_hundred_clients(tmp_path: Path) -> None:
    lake = ServedLake(tmp_path / "lake")
    lake.database.close()
    script = "; ".join(f"create table t{each} (id bigint, v bigint)" for each in range(TABLES))
    lake.lake.apply(script, actor="setup")
    told = tmp_path / "server.log"
    variables = {"HEADWATER_LOG_FORMAT": "json", "HEADWATER_LOG_LEVEL": "info"}
    with told.open("w") as stderr, telling(stderr, lake.folder, **variables) as server:
        heard = asyncio.run(crowd(server.address))
    print(dict(heard.statuses))
    assert heard.surprises == []
    assert heard.commits
    assert heard.iceberg
    log = [each for each in lake.lake.catalog.log(lake.lake.resolve()) if each.actor == "anonymous"]
    # Every write that was answered is in the log once, and nothing else is.
    assert len(log) == len(heard.commits) + heard.iceberg
    assert len({each.operation for each in log}) == len(log)
    assert heard.commits.items() <= {each.operation: each.hash for each in log}.items()
    for table in range(TABLES):
        assert lake.rows(f"select count(*) as n from t{table}") == [{"n": heard.rows[table]}]
    # And so is every answer in the server's own: as often as it was heard, and with the reason if it was none.
    lines = [each for each in map(json.loads, told.read_text().splitlines()) if each["message"] == "answered"]
    assert Counter(each["status"] for each in lines) == Counter(
        {status: sum(count for (_, s), count in heard.statuses.items() if s == status) for _, status in heard.statuses}
    )
    assert {each["operation"] for each in lines if each["operation"]} >= heard.commits.keys()
    refused = {each["code"] for each in lines if each["status"] != 200 and each["path"].startswith("/v1")}
    assert refused <= {"conflict", "busy", "too_many"}
