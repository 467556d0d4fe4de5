"""The real servers that Headwater is developed and tested against, started on free loopback ports."""

from headwater.devservices.model import Endpoint
from headwater.devservices.s3 import bucket_of
from headwater.devservices.services import DEFAULT, check_names, down, names, regional_names, status, up
from headwater.devservices.signing import create_bucket

__all__ = [
    "Endpoint",
    "DEFAULT",
    "up",
    "down",
    "status",
    "names",
    "regional_names",
    "check_names",
    "create_bucket",
    "bucket_of",
]
