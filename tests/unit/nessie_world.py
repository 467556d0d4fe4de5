"""A lake on the model of Nessie, and what engines do there without us."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from headwater.catalog.model import Content, TableKey
from headwater.catalog.nessie.codec import content_to_json, key_to_json
from headwater.catalog.nessie.model import FENCE
from headwater.catalog.nessie.open import NessieUrl, init_nessie, open_nessie
from headwater.catalog.nessie.protocol import NessieCatalog
from headwater.kernel.clock import ManualClock
from headwater.kernel.randomness import system_randomness
from headwater.kernel.retry import RetryPolicy
from tests.fixtures.nessie import API, ModelNessie

COMMIT = r"/history/commit$"
PATIENT = RetryPolicy(attempts=4, first_seconds=0.0, longest_seconds=0.0)


@dataclass
class World:
    """The server, and as many processes as a test wants."""

    server: ModelNessie = field(default_factory=ModelNessie)
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.url = NessieUrl(API, "s3://lake/warehouse")
        init_nessie(self.url, clock=self.clock, randomness=system_randomness(), policy=PATIENT, transport=self.server)

    def open(self) -> NessieCatalog:
        return open_nessie(
            self.url, clock=self.clock, randomness=system_randomness(), policy=PATIENT, transport=self.server
        )

    def foreign(self, contents: Mapping[TableKey, Content | None], branch: str = "main") -> str:
        """What an engine does: one commit on the head, without a word to us."""
        with httpx.Client(transport=self.server, base_url=API + "/") as client:
            head = client.get(f"trees/{branch}").json()["reference"]["hash"]
            keys = [key_to_json(key.elements) for key in contents]
            held = client.post(f"trees/{branch}/contents", json={"requestedKeys": keys}).json()["contents"]
            ids = {tuple(each["key"]["elements"]): each["content"]["id"] for each in held}
            operations: list[dict[str, Any]] = [
                {"type": "DELETE", "key": key_to_json(key.elements)}
                if content is None
                else {
                    "type": "PUT",
                    "key": key_to_json(key.elements),
                    "content": content_to_json(key, content, ids.get(key.elements)),
                }
                for key, content in contents.items()
            ]
            body = {"commitMeta": {"message": "an engine"}, "operations": operations}
            answer = client.post(f"trees/{branch}@{head}/history/commit", json=body)
            made: str = answer.raise_for_status().json()["targetBranch"]["hash"]
            return made

    def once_before(self, method: str, ending: str, action: Callable[[], object]) -> None:
        """Do this right before the next request of that kind."""

        def hook(asked: str, path: str) -> None:
            if asked == method and path.endswith(ending):
                self.server.before = lambda _method, _path: None
                action()

        self.server.before = hook

    def fence(self, branch: str) -> dict[str, Any] | None:
        """What the fence of a branch holds."""
        with httpx.Client(transport=self.server, base_url=API + "/") as client:
            asked = {"requestedKeys": [key_to_json(FENCE)]}
            held = client.post(f"trees/{branch}/contents", json=asked).json()["contents"]
            return held[0]["content"] if held else None

    @property
    def temporaries(self) -> list[str]:
        return [name for name in self.server.refs if name.startswith("headwater/commit/")]
