"""A served lake in a folder, behind a real socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from headwater.access import Role
from headwater.app import App
from headwater.kernel.clock import Clock, ManualClock
from headwater.kernel.settings import ServerSettings, load
from headwater.lake import Lake
from headwater.server.main import application, listener, open_to_serve, served
from headwater.server.serving import Serving

PATIENCE_SECONDS = 60


@contextmanager
def listening(serving: Serving) -> Iterator[str]:
    """The address of a server that takes requests for as long as the block lasts."""
    address = list[str]()
    started = threading.Event()

    def ready(where: str) -> None:
        address.append(where)
        started.set()

    server = listener(application(serving), serving.settings.model_copy(update={"port": 0}), ready=ready)
    thread = threading.Thread(target=server.run, name="server")
    thread.start()
    try:
        assert started.wait(PATIENCE_SECONDS)
        yield address[0]
    finally:
        server.should_exit = True
        thread.join()


class ServedLake:
    """A lake with the table `t (id, v)`, its server, and clients of it."""

    def __init__(self, folder: Path, clock: Clock | None = None, **settings: Any) -> None:
        self.folder = folder
        server = ServerSettings(**settings)
        told = load(environ={}).model_copy(update={"server": server})
        self.app = App(told, clock=clock) if clock else App(told)
        self.app.init_lake(str(folder))
        self.database = self.app.open_database(str(folder))
        self.lake: Lake = open_to_serve(self.app, str(folder))
        self.lake.apply("create table t (id bigint not null, v varchar, primary key (id))", actor="setup")
        self.serving: Serving = served(self.app, self.lake, self.database, server)
        self.client = httpx.Client(timeout=PATIENCE_SECONDS)

    def token(self, role: Role, name: str | None = None) -> dict[str, str]:
        """The header of a new token."""
        _, text = self.serving.tokens.create(name or f"a-{role}", role)
        return {"authorization": f"Bearer {text}"}

    def mutate(self, sql: str | list[str], branch: str = "main", **headers: str) -> httpx.Response:
        return self.client.post(f"/v1/{branch}/mutate", json={"sql": sql}, headers=headers)

    def query(self, sql: str, branch: str = "main", **headers: str) -> httpx.Response:
        return self.client.post(f"/v1/{branch}/query", json={"sql": sql}, headers=headers)

    def rows(self, sql: str = "select id, v from t order by id") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.lake.query(sql).to_pylist()
        return found

    def actors(self, branch: str = "main") -> list[str]:
        return [each.actor for each in self.lake.catalog.log(self.lake.catalog.ref(branch).hash)]


@contextmanager
def served_lake(folder: Path, clock: ManualClock | None = None, **settings: Any) -> Iterator[ServedLake]:
    """It, until the block ends."""
    world = ServedLake(folder, clock, **settings)
    try:
        with listening(world.serving) as address, world.client:
            world.client.base_url = address
            yield world
    finally:
        world.database.close()
