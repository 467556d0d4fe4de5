"""Settings: `headwater.toml`, then `HEADWATER_*` variables on top, validated before anything starts.

A setting `[storage.s3] endpoint` is the variable `HEADWATER_STORAGE_S3_ENDPOINT`. A key that does not
exist is refused, with the nearest one that does. This is the only module that reads the environment.
"""

from __future__ import annotations

import getpass
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from headwater.kernel.durations import parse_duration
from headwater.kernel.errors import UsageError

FILE_NAME = "headwater.toml"
PREFIX = "HEADWATER_"
# Variables that are not settings: where things live on this machine, and what tests arm.
RESERVED = ("HEADWATER_CACHE", "HEADWATER_FAILPOINTS", "HEADWATER_HOME", "HEADWATER_SETTINGS")


_NUMBER = re.compile(r"\d+(\.\d+)?")
_HTTP_URL = re.compile(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?(/[^\s@]*)?")


def _seconds(value: object) -> object:
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    try:
        return parse_duration(value).total_seconds()
    except UsageError as error:
        raise ValueError(str(error)) from error


def _http_url(value: str | None) -> str | None:
    if value is not None and not _HTTP_URL.fullmatch(value):
        raise ValueError("it is not a URL like http://host:port, without credentials")
    return value


def _words(value: object) -> object:
    return [word for word in re.split(r"[,\s]+", value) if word] if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
"""A list setting; a variable separates the words by commas or spaces."""

Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0, le=366 * 86400, allow_inf_nan=False)]
"""A duration setting: `"30s"` or a number of seconds."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class LogSettings(_Section):
    """How the process speaks."""

    format: Literal["text", "json"] = Field("text", description="`text` for people, `json` for machines.")
    level: Literal["debug", "info", "warning", "error"] = Field(
        "warning", description="The least level that is printed."
    )


class S3Settings(_Section):
    """Where S3 is. Without keys the usual AWS variables and instance roles are used."""

    endpoint: Annotated[str | None, AfterValidator(_http_url)] = Field(
        None, description="URL of an S3 server other than AWS."
    )
    region: str = Field("us-east-1", description="Region that requests are signed for.")
    access_key_id: str | None = Field(None, description="Access key; goes with `secret_access_key`.")
    secret_access_key: SecretStr | None = Field(None, description="Secret key; never printed.")
    virtual_hosted: bool = Field(default=False, description="Put the bucket into the host name, as AWS does.")

    @model_validator(mode="after")
    def _both_keys_or_none(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("access_key_id and secret_access_key go together")
        return self


class StorageSettings(_Section):
    """How object stores are talked to."""

    retry_attempts: int = Field(6, ge=1, description="How often a request is tried.")
    retry_budget_seconds: Seconds = Field(15.0, description="How long all tries of a request may take.")
    request_timeout_seconds: Seconds = Field(30.0, description="How long one request may take.")
    allowed_prefixes: Words = Field(
        (), description="URLs outside the lake under which tables may have files, to be read only."
    )
    s3: S3Settings = Field(default_factory=lambda: S3Settings(), description="S3 and servers that speak it.")


class NessieSettings(_Section):
    """Lakes on a Nessie server."""

    token: SecretStr | None = Field(None, description="Bearer token for the server; never printed.")
    answer_seconds: Seconds = Field(30.0, description="How long the server may take to answer.")


class SequenceSettings(_Section):
    """Sequenced metadata and its collection."""

    clock_skew_seconds: Seconds = Field(
        60.0, description="How far two machines' clocks may differ before an expired pin is ignored."
    )


class PublishSettings(_Section):
    """Transactions."""

    lease_seconds: Seconds = Field(
        60.0, description="How long a change may take from its note to its commit; then others may undo it."
    )


class LoadSettings(_Section):
    """Loads of files."""

    concurrency: int = Field(2, ge=1, le=64, description="Data files that one load writes at a time.")


class SparkSettings(_Section):
    """Where Spark runs."""

    master: str = Field("local[*]", description="Spark master; ignored when `remote` is set.")
    remote: str | None = Field(None, description="Spark Connect URL, `sc://host:port`.")
    driver_memory: str = Field("1g", description="Heap of a local driver.")


class SyncSettings(_Section):
    """Regional replicas."""

    copy_processes: int = Field(2, ge=1, le=64, description="Batches that are copied at a time, by a process each.")
    copy_transfers: int = Field(8, ge=1, le=256, description="Files that each of these processes copies at a time.")
    copy_bandwidth_bytes_per_second: int | None = Field(
        None, ge=1024, description="What all copies of a region may take together; without a limit by default."
    )
    rclone: str | None = Field(None, description="The rclone program; the installed one by default.")
    rclone_config: str | None = Field(
        None, description="rclone's own configuration with the registry's remotes; made from `storage` by default."
    )
    verify_sample_rate: float = Field(
        0.01, ge=0, le=1, description="Share of the copies whose bytes are compared; sizes are compared of all."
    )
    catalog: str | None = Field(
        None, description="The catalog as the region sees it, `nessie+http://…`; the lake's own by default."
    )
    history: Literal["full", "current"] = Field("full", description="Which snapshots replicas have.")
    lease_seconds: Seconds = Field(60.0, description="How long a process that died keeps its region and its files.")
    batch_files: int = Field(10_000, ge=1, description="Files of a batch, at most.")
    batch_bytes: int = Field(10 * 1024**3, ge=1, description="Bytes of a batch, at most; a larger file is alone.")
    forward_commits: int = Field(20, ge=1, description="Commits behind `main` from which a run goes to the newest.")
    forward_after_seconds: Seconds = Field(900.0, description="Lag from which a run goes straight to the newest.")
    alarm_after_seconds: Seconds = Field(1800.0, description="Lag from which writers are told to slow down.")
    alarm_backlog_bytes: int = Field(100 * 1024**3, ge=1, description="Bytes to copy from which they are told, too.")
    gate_seconds: Seconds = Field(300.0, description="How long a promotion waits for the region to show its target.")
    observe_seconds: Seconds = Field(300.0, description="How long a promoted commit may take to be seen there.")
    poll_seconds: Seconds = Field(1.0, description="How often the region's catalog is looked at meanwhile.")
    watch_seconds: Seconds = Field(5.0, description="How often `sync run --watch` looks for new commits.")
    tasks: int = Field(4, ge=1, le=10_000, description="Tasks of a Spark job; each costs about 75 ms by itself.")
    stale_after_seconds: Seconds = Field(300.0, description="Lag from which readers are sent to `main`.")
    well_for_seconds: Seconds = Field(120.0, description="How long a replica is well before they come back.")
    verify_concurrency: int = Field(32, ge=1, le=1024, description="Copies that are looked at, or read, at a time.")
    metrics_file: str | None = Field(
        None, description="File in which a sync keeps its metrics, for the node exporter of Prometheus; `….prom`."
    )


class QuerySettings(_Section):
    """What one query may use of this machine."""

    memory_limit_bytes: int | None = Field(
        None, ge=64 * 1024 * 1024, description="Memory of one query; beyond it, it spills to disk. DuckDB's by default."
    )
    threads: int | None = Field(None, ge=1, description="Threads of one query; all cores by default.")
    timeout_seconds: Seconds | None = Field(None, description="How long a query may take; without end by default.")
    temp_directory: str | None = Field(None, description="Where queries spill to; the system's by default.")


class ServerSettings(_Section):
    """`headwater serve`."""

    host: str = Field("127.0.0.1", description="Address to listen on; any but a loopback one needs tokens.")
    port: int = Field(8181, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    tls_certificate: str | None = Field(None, description="Certificate chain in PEM; with it the server speaks TLS.")
    tls_key: str | None = Field(None, description="The certificate's private key in PEM.")
    writes_in_flight: int = Field(32, ge=1, le=1024, description="Writes at a time; one more is answered 429.")
    queries_in_flight: int = Field(16, ge=1, le=1024, description="Queries at a time; one more is answered 429.")
    request_bytes: int = Field(8 * 1024 * 1024, ge=1024, description="The longest body of a request, loads apart.")
    load_bytes: int = Field(4 * 1024**3, ge=1024, description="The longest body of a load.")
    body_seconds: Seconds = Field(30.0, description="How long a body may stand still before it is given up.")
    write_seconds: Seconds = Field(120.0, description="How long a write may take; later it is not committed any more.")
    query_seconds: Seconds = Field(300.0, description="How long a query may take, unless `query` says less.")
    drain_seconds: Seconds = Field(30.0, description="How long answers may still take once the server is told to stop.")
    keys_kept_seconds: Seconds = Field(86400.0, description="How long idempotency keys and their answers are kept.")

    iceberg_config: Words = Field(
        (), description="`name=value` that Iceberg engines get with every table, such as `s3.endpoint=…`."
    )

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together")
        return self


class Settings(_Section):
    """Everything a user can set."""

    lake: str | None = Field(None, description="The lake that commands take when none is named.")
    database: str | None = Field(None, description="SQLAlchemy URL of the state database; SQLite by default.")
    coordination: str | None = Field(None, description="`etcd+http://host:port`, or nothing for the state database.")
    registry: str | None = Field(
        None, description="Prefix under which the storage registry is published; `_headwater` of the lake by default."
    )
    region: str | None = Field(None, description="The region that this process writes in: its files go there.")
    registry_poll_seconds: Seconds = Field(30.0, description="How old the last look at the registry may be.")
    topology: str | None = Field(None, description="The topology file of the ingest nodes, for `query --fresh`.")
    log: LogSettings = Field(default_factory=lambda: LogSettings(), description="Logs.")
    storage: StorageSettings = Field(default_factory=lambda: StorageSettings(), description="Object stores.")
    nessie: NessieSettings = Field(default_factory=lambda: NessieSettings(), description="Nessie.")
    sequence: SequenceSettings = Field(default_factory=lambda: SequenceSettings(), description="Sequences.")
    query: QuerySettings = Field(default_factory=lambda: QuerySettings(), description="Queries.")
    publish: PublishSettings = Field(default_factory=lambda: PublishSettings(), description="Transactions.")
    load: LoadSettings = Field(default_factory=lambda: LoadSettings(), description="Loads.")
    sync: SyncSettings = Field(default_factory=lambda: SyncSettings(), description="Regional replicas.")
    server: ServerSettings = Field(default_factory=lambda: ServerSettings(), description="The server.")
    spark: SparkSettings = Field(default_factory=lambda: SparkSettings(), description="Spark.")


def environment() -> Mapping[str, str]:
    """The process's environment."""
    return os.environ


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Variables for programs that are started within the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where downloads are kept between runs: `HEADWATER_CACHE`, or the user's cache folder."""
    environ = environment() if environ is None else environ
    if chosen := environ.get("HEADWATER_CACHE"):
        return Path(chosen).absolute()
    return Path(environ.get("XDG_CACHE_HOME") or _user_folder("HEADWATER_CACHE") / ".cache") / "headwater"


def home_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where state lives that has no folder lake to live in: `HEADWATER_HOME`, or the user's data folder."""
    environ = environment() if environ is None else environ
    if chosen := environ.get("HEADWATER_HOME"):
        return Path(chosen).absolute()
    return Path(environ.get("XDG_DATA_HOME") or _user_folder("HEADWATER_HOME") / ".local" / "share") / "headwater"


def user_name() -> str:
    """Who runs this process, for the log; the user of a container may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def _user_folder(variable: str) -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise UsageError("this user has no home folder", hint=f"set {variable}") from None


def load(file: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the file (if it is there, or was named) and the variables; refuse what is unknown or out of range."""
    environ = environment() if environ is None else environ
    named = file or (Path(environ["HEADWATER_SETTINGS"]) if environ.get("HEADWATER_SETTINGS") else None)
    path = named or Path(FILE_NAME)
    values: dict[str, Any] = {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if named is not None:
            raise UsageError(f"settings file {path} does not exist", path=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}", path=str(path)) from error
    except OSError as error:
        raise UsageError(f"settings file {path} cannot be read: {error.strerror}", path=str(path)) from error
    _refuse_unknown_keys(values, Settings, str(path), ())
    for variable, keys in _overrides(environ):
        target = values
        for key in keys[:-1]:
            target = target.setdefault(key, {})
        target[keys[-1]] = environ[variable]
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise _explained(error, path) from None


def names(model: type[BaseModel] = Settings, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every setting with its description, as (path of keys, description); sections are descended into."""
    for key, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from names(field.annotation, (*above, key))
        else:
            yield (*above, key), field.description or ""


def variable_of(keys: tuple[str, ...]) -> str:
    """The environment variable that sets this setting."""
    return PREFIX + "_".join(keys).upper()


def _overrides(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    known = {variable_of(keys): keys for keys, _ in names()}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in RESERVED:
            continue
        if variable not in known:
            raise _unknown("variable", variable, list(known), "the environment")
        yield variable, known[variable]


def _refuse_unknown_keys(values: Mapping[str, Any], model: type[BaseModel], where: str, above: tuple[str, ...]) -> None:
    for key, value in values.items():
        dotted = ".".join((*above, key))
        field = model.model_fields.get(key)
        if field is None:
            raise _unknown("setting", dotted, [".".join((*above, known)) for known in model.model_fields], where)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            if not isinstance(value, dict):
                raise UsageError(f"{dotted} in {where} must be a table, [{dotted}]", setting=dotted)
            _refuse_unknown_keys(value, field.annotation, where, (*above, key))


def _unknown(what: str, name: str, known: list[str], where: str) -> UsageError:
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    return UsageError(f"unknown {what} {name} in {where}", hint=hint, setting=name)


def _explained(error: ValidationError, path: Path) -> UsageError:
    first = error.errors(include_url=False, include_input=False)[0]
    keys = tuple(str(part) for part in first["loc"])
    dotted = ".".join(keys)
    return UsageError(
        f"setting {dotted} is not valid: {first['msg'].removeprefix('Value error, ')}",
        hint=f"set it in {path} or by {variable_of(keys)}",
        setting=dotted,
    )
