"""Where crash tests work, a folder or a bucket, and how another process gets there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater.app import App
from headwater.devservices import Endpoint, create_bucket
from headwater.kernel import settings
from headwater.kernel.clock import SystemClock
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import system_randomness
from tests.fixtures.stores import BUCKET

S3 = pytest.param("s3", marks=pytest.mark.services)
both = pytest.mark.parametrize("place", ["file", S3], indirect=True)


@dataclass
class Place:
    """The URL of the lake or namespace, and the settings that lead to it."""

    url: str
    environ: dict[str, str]

    def app(self) -> App:
        return App(settings.load(environ=self.environ))


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The place that the test is parametrised with."""
    if request.param == "file":
        return Place(str(tmp_path / "lake"), {})
    endpoint: Endpoint = request.getfixturevalue("versitygw")
    create_bucket(endpoint, BUCKET)
    assert endpoint.access_key_id is not None
    assert endpoint.secret_access_key is not None
    environ = {
        "HEADWATER_STORAGE_S3_ENDPOINT": endpoint.url,
        "HEADWATER_STORAGE_S3_ACCESS_KEY_ID": endpoint.access_key_id,
        "HEADWATER_STORAGE_S3_SECRET_ACCESS_KEY": endpoint.secret_access_key,
    }
    return Place(f"s3://{BUCKET}/{new_ulid(SystemClock(), system_randomness())}", environ)
