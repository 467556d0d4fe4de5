"""The settings of each engine. Pure; what is secret is never among them, but named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never
from urllib.parse import quote

from headwater.sync.connect.model import Bucket, Connection, Engine, OnNessie, Place, Served
from headwater.sync.model import ORIGIN_BRANCH

# What engines call the catalog that reads the replica, and the one that writes.
READER = "headwater"
WRITER = "headwater_main"

_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_NESSIE_CATALOG = "org.apache.iceberg.nessie.NessieCatalog"
_GCS = "gs://"
_GCS_FILES = "org.apache.iceberg.gcp.gcs.GCSFileIO"
_S3_FILES = "org.apache.iceberg.aws.s3.S3FileIO"


def connection(engine: Engine, place: Place) -> Connection:
    """What makes the engine read the region's replica."""
    match engine:
        case Engine.SPARK:
            return _spark(place)
        case Engine.TRINO:
            return _trino(place)
        case Engine.DUCKDB:
            return _duckdb(place)
        case Engine.PYICEBERG:
            return _pyiceberg(place)
        case _:
            assert_never(engine)


def _spark(place: Place) -> Connection:
    files = {} if place.bucket is None else {"io-impl": _S3_FILES, **_iceberg_bucket(place.bucket)}
    if place.local_prefix.startswith(_GCS):
        files["io-impl"] = _GCS_FILES
    warehouse = place.local_prefix.rstrip("/")
    writer: dict[str, str] = {}
    match place.catalog:
        case Served(uri, branch):
            reader = {"type": "rest", "uri": uri, "warehouse": branch, **files}
            named = "token"
        case OnNessie(regional, primary, branch):
            common = {"catalog-impl": _NESSIE_CATALOG, "warehouse": warehouse, **files}
            if place.needs_token:
                common["authentication.type"] = "BEARER"
            reader = {**common, "uri": regional, "ref": branch}
            writer = {**common, "uri": primary, "ref": ORIGIN_BRANCH}
            named = "authentication.token"
    settings = {name: _spark_keys(name, values) for name, values in ((READER, reader), (WRITER, writer)) if values}
    lines = {
        "spark.sql.extensions": _EXTENSIONS,
        **{key: value for each in settings.values() for key, value in each.items()},
    }
    width = max(map(len, lines))
    notes = ["needs the packages iceberg-spark-runtime" + (" and iceberg-aws-bundle" if place.bucket else "")]
    if writer:
        notes.append(f"{READER} reads, {WRITER} writes: new tables get their files under {place.local_prefix}")
        notes.append("a table that is there already is written where its location or its write.data.path says")
    notes += _token_notes(place, *(f"spark.sql.catalog.{name}.{named}" for name in settings))
    text = "".join(f"{key.ljust(width)}  {value}\n" for key, value in lines.items())
    return Connection(Engine.SPARK, settings[READER], text, settings.get(WRITER, {}), tuple(notes + _key_notes(place)))


def _spark_keys(name: str, values: Mapping[str, str]) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{name}"
    return {prefix: _SPARK_CATALOG, **{f"{prefix}.{key}": value for key, value in values.items()}}


def _trino(place: Place) -> Connection:
    reader = {"connector.name": "iceberg"}
    match place.catalog:
        case Served(uri, branch):
            reader |= {
                "iceberg.catalog.type": "rest",
                "iceberg.rest-catalog.uri": uri,
                "iceberg.rest-catalog.warehouse": branch,
            }
            if place.needs_token:
                reader |= {
                    "iceberg.rest-catalog.security": "OAUTH2",
                    "iceberg.rest-catalog.oauth2.token": "${ENV:HEADWATER_TOKEN}",
                }
        case OnNessie(regional, _, branch):
            reader |= {
                "iceberg.catalog.type": "nessie",
                "iceberg.nessie-catalog.uri": regional,
                "iceberg.nessie-catalog.ref": branch,
                "iceberg.nessie-catalog.default-warehouse-dir": place.local_prefix.rstrip("/"),
            }
            if place.needs_token:
                reader |= {
                    "iceberg.nessie-catalog.authentication.type": "BEARER",
                    "iceberg.nessie-catalog.authentication.token": "${ENV:HEADWATER_TOKEN}",
                }
    if place.bucket is None:
        reader["fs.native-gcs.enabled" if place.local_prefix.startswith(_GCS) else "fs.hadoop.enabled"] = "true"
    else:
        reader |= {"fs.native-s3.enabled": "true", "s3.region": place.bucket.region}
        if place.bucket.endpoint is not None:
            reader["s3.endpoint"] = place.bucket.endpoint
        if not place.bucket.is_virtual_hosted:
            reader["s3.path-style-access"] = "true"
    notes = [f"goes into etc/catalog/{READER}.properties"]
    if place.needs_token:
        notes.append("give Trino the token in the variable HEADWATER_TOKEN")
    text = "".join(f"{key}={value}\n" for key, value in reader.items())
    return Connection(Engine.TRINO, reader, text, notes=tuple(notes + _key_notes(place)))


def _duckdb(place: Place) -> Connection:
    uri, warehouse, notes = _duckdb_catalog(place)
    reader = {"endpoint": uri, "warehouse": warehouse}
    lines = ["INSTALL iceberg;", "LOAD iceberg;"]
    options = f"TYPE iceberg, ENDPOINT {_quoted(uri)}"
    if place.needs_token:
        lines.append(f"CREATE SECRET {READER} (TYPE iceberg, TOKEN '<TOKEN>');")
        options += f", SECRET {READER}"
        notes.append("put the token where <TOKEN> stands")
    else:
        options += ", AUTHORIZATION_TYPE 'none'"
    if place.bucket is not None:
        lines.append(_duckdb_bucket(place.bucket))
        options += ", ACCESS_DELEGATION_MODE 'none'"
    lines.append(f"ATTACH {_quoted(warehouse)} AS {READER} ({options});")
    text = "".join(f"{line}\n" for line in lines)
    return Connection(Engine.DUCKDB, reader, text, notes=tuple(notes + _key_notes(place)))


def _duckdb_catalog(place: Place) -> tuple[str, str, list[str]]:
    """URI, warehouse, and what is left to do: DuckDB keeps to the URI that it is given, so that it can name no branch.

    Nessie is told of a warehouse that stands for the branch. Where it was not told, it refuses, and shows nothing else.
    """
    match place.catalog:
        case Served(uri, branch):
            return uri, branch, []
        case OnNessie(regional, _, branch):
            named = f'nessie.catalog.warehouses."{branch}"'
            told = f"{named}.location={place.local_prefix}, {named}.iceberg-config-overrides.prefix={_escaped(branch)}"
            notes = [f"the region's Nessie has to know the warehouse: {told}"]
            return f"{_nessie_root(regional)}/iceberg", branch, notes


def _duckdb_bucket(bucket: Bucket) -> str:
    """Keys come from where AWS programs find them."""
    parts = ["TYPE s3", "PROVIDER credential_chain", f"REGION {_quoted(bucket.region)}"]
    if bucket.endpoint is not None:
        scheme, _, host = bucket.endpoint.partition("://")
        parts += [f"ENDPOINT {_quoted(host.rstrip('/'))}", f"USE_SSL {str(scheme == 'https').lower()}"]
    if not bucket.is_virtual_hosted:
        parts.append("URL_STYLE 'path'")
    return f"CREATE SECRET {READER}_files ({', '.join(parts)});"


def _pyiceberg(place: Place) -> Connection:
    uri, warehouse = _rest(place.catalog)
    reader = {"type": "rest", "uri": uri}
    if warehouse is not None:
        reader["warehouse"] = warehouse
    if place.bucket is not None:
        bucket = place.bucket
        reader["s3.region"] = bucket.region
        if bucket.endpoint is not None:
            reader["s3.endpoint"] = bucket.endpoint
        reader["s3.force-virtual-addressing"] = str(bucket.is_virtual_hosted).lower()
    lines = ["catalog:", f"  {READER}:", *(f"    {key}: {_yaml(value)}" for key, value in reader.items())]
    notes = ["goes into .pyiceberg.yaml", *_token_notes(place, f"PYICEBERG_CATALOG__{READER.upper()}__TOKEN")]
    text = "".join(f"{line}\n" for line in lines)
    return Connection(Engine.PYICEBERG, reader, text, notes=tuple(notes + _key_notes(place)))


def _rest(catalog: Served | OnNessie) -> tuple[str, str | None]:
    """An Iceberg REST catalog: its URI, and the warehouse to ask for; Nessie has a default one, and URIs of refs."""
    match catalog:
        case Served(uri, branch):
            return uri, branch
        case OnNessie(regional, _, branch):
            return f"{_nessie_root(regional)}/iceberg/{_escaped(branch)}", None


def _nessie_root(api: str) -> str:
    return api.rstrip("/").removesuffix("/v2").removesuffix("/v1").removesuffix("/api")


def _escaped(branch: str) -> str:
    """A branch in a path."""
    return quote(branch, safe="")


def _iceberg_bucket(bucket: Bucket) -> dict[str, str]:
    found = {"client.region": bucket.region}
    if bucket.endpoint is not None:
        found["s3.endpoint"] = bucket.endpoint
    if not bucket.is_virtual_hosted:
        found["s3.path-style-access"] = "true"
    return found


def _token_notes(place: Place, *names: str) -> list[str]:
    return [f"set {name} to the token" for name in names] if place.needs_token else []


def _key_notes(place: Place) -> list[str]:
    if place.bucket is None:
        return []
    return ["keys for the bucket are not printed: give them as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role"]


def _quoted(text: str) -> str:
    """A string of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _yaml(text: str) -> str:
    """A string of YAML, whatever is in it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
