"""Requests that nobody thought of, made from the server's own OpenAPI: none of them is a surprise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy
from schemathesis.checks import not_a_server_error
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.unit.server_world import ServedLake, served_lake

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    negative_data_rejection,
    unsupported_method,
    allow_header_conformance,
]
EXAMPLES = 8

pytestmark = pytest.mark.proves("server/lake-api")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLake]:
    folder: Path = tmp_path_factory.mktemp("fuzz") / "lake"
    with served_lake(folder) as world:
        world.mutate("insert into t values (1, 'a')")
        yield world


def test_no_request_is_a_surprise(served: ServedLake) -> None:
    schema = schemathesis.openapi.from_url(f"{served.client.base_url}/openapi.json")
    seen = set()
    for result, mode in product(schema.get_all_operations(), GenerationMode):
        operation = result.ok()
        seen.add(operation.label)
        with suppress(Unsatisfiable):  # a route that takes nothing cannot be given the wrong thing
            try_out(operation.as_strategy(generation_mode=mode), reaches=mode is GenerationMode.POSITIVE)
    assert {"POST /v1/{branch}/mutate", "GET /v1/refs"} <= seen
    assert served.client.get("/readyz").status_code == 200
    assert [each["id"] for each in served.rows()][:1] == [1]


def try_out(cases: SearchStrategy[Any], *, reaches: bool) -> None:
    """Send some of the requests; where they shall reach anything, to the branch that there is."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def holds(case: Any) -> None:
        if reaches:
            case.path_parameters |= {name: "main" for name in ("branch", "commit") if name in case.path_parameters}
        case.call_and_validate(checks=CHECKS)

    holds()
