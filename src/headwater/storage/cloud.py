"""S3 and Google Cloud Storage, through obstore.

obstore's own retries are off: it cannot tell a create that lost its answer from one that lost its race, so
a retry inside it would report our own object as somebody else's. What an error proves is decided here:

    412, or 404 on an update          refused, nothing changed
    409                               S3 saw a concurrent conditional write: nothing changed, try again
    429, connection never made        nothing changed, try again
    5xx, 408, connection lost         a read may be tried again; of a change nobody knows
    501, other 4xx                    refused, nothing changed
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotModifiedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import GCSStore, S3Store

from headwater.kernel.settings import S3Settings
from headwater.storage.errors import (
    ForbiddenError,
    MissingCapabilityError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StorageError,
    StorageOutcomeUnknownError,
    TransientError,
)
from headwater.storage.paths import check_path, check_prefix
from headwater.storage.port import Capability, Create, Fetched, ObjectMeta, Overwrite, Prepared, PutMode, Update
from headwater.storage.prepared import Unprepared
from headwater.storage.spans import check_span, deletable_prefix, past_the_end

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ClientConfig, RetryConfig, S3Config

T = TypeVar("T")

_STATUS = re.compile(r"status code: (\d{3})")
_PAGE = 1000


def open_s3(bucket: str, settings: S3Settings, *, timeout_seconds: float) -> CloudStore:
    """A bucket on AWS, or on the server that the settings name."""
    config: S3Config = {"region": settings.region, "virtual_hosted_style_request": settings.virtual_hosted}
    if settings.endpoint:
        config["endpoint"] = settings.endpoint
    if settings.access_key_id and settings.secret_access_key:
        config["access_key_id"] = settings.access_key_id
        config["secret_access_key"] = settings.secret_access_key.get_secret_value()
    insecure = bool(settings.endpoint and settings.endpoint.startswith("http://"))
    store = S3Store(
        bucket, config=config, client_options=_client(timeout_seconds, allow_http=insecure), retry_config=_NO_RETRY
    )
    return CloudStore(store, f"s3://{bucket}", frozenset(Capability) - {Capability.CONDITIONAL_DELETE})


def open_gcs(bucket: str, *, timeout_seconds: float) -> CloudStore:
    """A bucket on Google Cloud Storage, with the machine's default credentials."""
    store = GCSStore(bucket, client_options=_client(timeout_seconds, allow_http=False), retry_config=_NO_RETRY)
    lacking = {Capability.CONDITIONAL_DELETE, Capability.TAGS}
    return CloudStore(store, f"gs://{bucket}", frozenset(Capability) - lacking)


_NO_RETRY: RetryConfig = {"max_retries": 0, "retry_timeout": timedelta(0)}


def _client(timeout_seconds: float, *, allow_http: bool) -> ClientConfig:
    return {
        "timeout": timedelta(seconds=timeout_seconds),
        "connect_timeout": timedelta(seconds=min(5.0, timeout_seconds)),
        "allow_http": allow_http,
    }


class CloudStore:
    """A bucket."""

    def __init__(self, store: S3Store | GCSStore, name: str, capabilities: frozenset[Capability]) -> None:
        self.name = name
        self.capabilities = capabilities
        self._store = store

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        """The object, or a range of it."""
        check_path(path)
        if span is None:
            return self._read(path, lambda: self._fetched(path, obstore.get(self._store, path)))
        asked = check_span(span, path)
        try:
            return self._read(
                path, lambda: self._fetched(path, obstore.get(self._store, path, options={"range": asked}))
            )
        except StorageError as error:
            if error.fields.get("status") == 416 or "Requested range" in error.message:
                raise past_the_end(asked, path) from error
            raise

    def get_if_changed(self, path: str, etag: str) -> Fetched | None:
        """The object unless it has this etag."""
        check_path(path)
        condition = _etag_and_version(etag)[0]

        def read() -> Fetched | None:
            try:
                result = obstore.get(self._store, path, options={"if_none_match": condition})
                return self._fetched(path, result)
            except NotModifiedError:
                return None

        return self._read(path, read)

    def head(self, path: str) -> ObjectMeta:
        """What the store says about the object."""
        check_path(path)

        def read() -> ObjectMeta:
            meta = obstore.head(self._store, path)
            return _meta(path, meta, self._version(meta["version"]))

        return self._read(path, read)

    def exists(self, path: str) -> bool:
        """Whether it is there."""
        try:
            self.head(path)
        except ObjectNotFoundError:
            return False
        return True

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        """Store under the condition, in one request."""
        check_path(path)
        if tags and Capability.TAGS not in self.capabilities:
            raise MissingCapabilityError(f"{self.name} has no object-tags", store=self.name, path=path)

        def write() -> str:
            result = obstore.put(
                self._store, path, data, mode=_mode(mode), tags=dict(tags) if tags else None, use_multipart=False
            )
            return _tag(result["e_tag"], self._version(result["version"]))

        return self._change(path, mode, write)

    def prepare(self, path: str, data: bytes) -> Prepared:
        """There are no steps here."""
        return Unprepared(self, path, data)

    def settle(self, path: str) -> None:
        """What is seen here is there to stay."""
        check_path(path)

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        """Remove, or leave what is not there."""
        check_path(path)
        if if_match is not None:
            raise MissingCapabilityError(f"{self.name} has no delete-if-match", store=self.name, path=path)
        self._change(path, Overwrite(), lambda: self._delete([path]))

    def delete_prefix(self, prefix: str) -> int:
        """Remove everything under the prefix, a thousand objects a request."""
        checked = deletable_prefix(prefix)
        count = 0
        batch: list[str] = []
        for meta in self.list(checked):
            batch.append(meta.path)
            if len(batch) == _PAGE:
                count += self._delete_batch(checked, batch)
                batch = []
        return count + (self._delete_batch(checked, batch) if batch else 0)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        """Page by page."""
        checked = check_prefix(prefix)
        stream = obstore.list(self._store, checked or None, offset=start_after, chunk_size=_PAGE)
        while True:
            page = self._read(checked, lambda: next(stream, None))
            if page is None:
                return
            for meta in page:
                # A marker for the folder itself comes back under the prefix's own name; it lies not within it.
                if not checked or meta["path"].startswith(f"{checked}/"):
                    yield _meta(meta["path"], meta, self._version(meta["version"]))

    def copy(self, source: str, target: str) -> None:
        """Copy within the bucket, without moving the bytes through here."""
        check_path(source)
        check_path(target)
        try:
            self._change(target, Overwrite(), lambda: obstore.copy(self._store, source, target))
        except ObjectNotFoundError:
            raise ObjectNotFoundError(self.name, source) from None

    def _delete(self, paths: Sequence[str]) -> None:
        """S3 takes many at once, and does not mind what is not there. Google says so, for each."""
        batches = [[path] for path in paths] if isinstance(self._store, GCSStore) else [list(paths)]
        for batch in batches:
            with suppress(FileNotFoundError):
                obstore.delete(self._store, batch)

    def _delete_batch(self, prefix: str, paths: Sequence[str]) -> int:
        self._change(prefix, Overwrite(), lambda: self._delete(paths))
        return len(paths)

    def _fetched(self, path: str, result: obstore.GetResult) -> Fetched:
        meta = _meta(path, result.meta, self._version(result.meta["version"]))
        return Fetched(bytes(result.bytes()), meta)

    def _version(self, version: str | None) -> str | None:
        """Google compares generations, S3 compares etags: there a version would only be in the way."""
        return version if isinstance(self._store, GCSStore) else None

    def _read(self, path: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except FileNotFoundError as error:
            raise self._absent(path, error) from None
        except BaseError as error:
            raise self._explained(path, error, changing=False) from None

    def _change(self, path: str, mode: PutMode, action: Callable[[], T]) -> T:
        try:
            return action()
        except (AlreadyExistsError, PreconditionError) as error:
            if _status(error) == 409:
                raise TransientError(self.name, path, "a concurrent conditional write is under way") from None
            expected = f"at etag {mode.etag}" if isinstance(mode, Update) else "absent"
            raise PreconditionFailedError(self.name, path, expected) from None
        except FileNotFoundError as error:
            if isinstance(mode, Update):
                raise PreconditionFailedError(self.name, path, f"at etag {mode.etag}") from None
            raise self._absent(path, error) from None
        except BaseError as error:
            raise self._explained(path, error, changing=True) from None

    def _absent(self, path: str, error: FileNotFoundError) -> StorageError:
        if "NoSuchBucket" in str(error):
            return StorageError(
                f"{self.name}: there is no such bucket", hint="make it, or mend the URL", store=self.name
            )
        return ObjectNotFoundError(self.name, path)

    def _explained(self, path: str, error: BaseError, *, changing: bool) -> Exception:
        """The error of ours that says what may be concluded from obstore's."""
        detail = str(error).split("\n\nDebug source", 1)[0]
        status = _status(error)
        if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
            return ForbiddenError(self.name, path)
        never_sent = status is None and "kind: Connect" in str(error)
        if never_sent or status == 429:
            return TransientError(self.name, path, detail)
        lost = status is None or (status >= 500 and status != 501) or status == 408
        if lost:
            kind = StorageOutcomeUnknownError if changing else TransientError
            return kind(self.name, path, detail)
        return StorageError(f"{self.name}: {path}: {detail}", store=self.name, path=path, status=status)


def _status(error: Exception) -> int | None:
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def _mode(mode: PutMode) -> obstore.PutMode:
    match mode:
        case Create():
            return "create"
        case Overwrite():
            return "overwrite"
        case Update(etag):
            condition, version = _etag_and_version(etag)
            update: UpdateVersion = {"e_tag": condition}
            if version is not None:
                update["version"] = version
            return update


def _tag(etag: str | None, version: str | None) -> str:
    return f"{etag or ''}#{version}" if version is not None else etag or ""


def _etag_and_version(tag: str) -> tuple[str, str | None]:
    etag, mark, version = tag.rpartition("#")
    return (etag, version) if mark else (tag, None)


def _meta(path: str, meta: obstore.ObjectMeta, version: str | None = None) -> ObjectMeta:
    etag = meta["e_tag"]
    return ObjectMeta(path, meta["size"], meta["last_modified"], _tag(etag, version) if etag else None)
