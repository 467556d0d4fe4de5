"""AWS Signature Version 4 for a request to an S3 server on loopback: health checks, and buckets for tests.

The product talks to S3 through its storage room; this room may import the kernel alone, and needs two requests.
"""

from __future__ import annotations

import hashlib
import hmac

from headwater.devservices import loopback
from headwater.devservices.model import Endpoint
from headwater.kernel.clock import Clock, SystemClock
from headwater.kernel.errors import UnavailableError

_REGION = "us-east-1"
_EMPTY = hashlib.sha256(b"").hexdigest()


def headers(
    method: str, port: int, path: str, access_key_id: str, secret_access_key: str, clock: Clock
) -> dict[str, str]:
    """The headers that sign a request without body and without query."""
    moment = clock.now().strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{_REGION}/s3/aws4_request"
    signed = {"host": f"127.0.0.1:{port}", "x-amz-content-sha256": _EMPTY, "x-amz-date": moment}
    names = ";".join(signed)
    canonical = "\n".join([method, path, "", *(f"{name}:{value}" for name, value in signed.items()), "", names, _EMPTY])
    to_sign = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret_access_key}".encode()
    for part in (*scope.split("/"), to_sign):
        key = hmac.digest(key, part.encode(), "sha256")
    authorization = f"AWS4-HMAC-SHA256 Credential={access_key_id}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    return {**signed, "Authorization": authorization}


def list_buckets(port: int, access_key_id: str, secret_access_key: str, clock: Clock) -> None:
    """A signed request that a healthy server accepts; raises otherwise."""
    signed = headers("GET", port, "/", access_key_id, secret_access_key, clock)
    answer = loopback.request("GET", port, "/", signed)
    if answer.status != 200 or b"ListAllMyBucketsResult" not in answer.body:
        raise UnavailableError(f"the S3 server answers {answer.status} to a signed request")


def create_bucket(endpoint: Endpoint, bucket: str, clock: Clock | None = None) -> None:
    """Make a bucket on a service of kind `s3` or `moto`; one that is ours already is left as it is."""
    assert endpoint.access_key_id is not None
    assert endpoint.secret_access_key is not None
    path = f"/{bucket}"
    signed = headers(
        "PUT", endpoint.port, path, endpoint.access_key_id, endpoint.secret_access_key, clock or SystemClock()
    )
    answer = loopback.request("PUT", endpoint.port, path, signed)
    if answer.status != 200 and b"BucketAlreadyOwnedByYou" not in answer.body:
        raise UnavailableError(f"bucket {bucket!r} cannot be made: the server answers {answer.status}", bucket=bucket)
