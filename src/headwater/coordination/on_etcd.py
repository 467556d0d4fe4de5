"""Coordination on etcd, through its v3 JSON gateway.

Under the namespace `k/` holds the keys and `o/` the recorded operations: etcd makes a record of ours in the very
transaction that it records, and the record's create revision is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from headwater.coordination.etcd_gateway import EtcdGateway, RejectedError, decode, encode, parse_endpoints
from headwater.coordination.etcd_records import RecordsLease
from headwater.coordination.limits import (
    check_key,
    check_lease,
    check_prefix,
    check_revision,
    check_transaction,
    check_ttl,
    prefix_end,
)
from headwater.coordination.model import (
    Absent,
    Batch,
    Compare,
    CreatedAt,
    Entry,
    Event,
    Lease,
    LeasedBy,
    Listing,
    ModifiedAt,
    Operation,
    Put,
    abandoned,
    compacted,
    conflict,
    failed,
    lease_expired,
)
from headwater.database import UNIDENTIFIED
from headwater.kernel.clock import Clock
from headwater.kernel.errors import CorruptError, HeadwaterError, UnavailableError, UsageError
from headwater.kernel.ids import Ulid, parse_ulid

Body = dict[str, list[dict[str, Any]]]
"""A transaction as the gateway takes it: compare, success, failure."""

_NOT_FOUND = 5
_DONE = b"done"
_NEVER = b"never"
# etcd catches a late watcher up ten times a second; with less patience a watch could end before its first event.
_LEAST_QUIET_SECONDS = 0.5


class EtcdCoordination:
    """The `Coordination` port on an etcd cluster. Revisions are etcd's own, shared with its other users."""

    def __init__(self, url: str, clock: Clock) -> None:
        members, namespace = parse_endpoints(url)
        self._gateway = EtcdGateway(members)
        self._keys = f"{namespace}/k/"
        self._operations = f"{namespace}/o/"
        self._records = RecordsLease(self.grant, clock)

    def __repr__(self) -> str:
        return f"EtcdCoordination({self._gateway!r}, {self._keys!r})"

    def get(self, key: str) -> Entry | None:
        """The key as it stands, or `None`."""
        check_key(key)
        answer = self._call("kv/range", {"key": encode(self._keys + key)})
        found = self._entries(answer)
        return found[0] if found else None

    def list(self, prefix: str) -> Listing:
        """All keys under `prefix`, and the revision they are from."""
        check_prefix(prefix)
        answer = self._call("kv/range", self._range(prefix))
        return Listing(int(answer["header"]["revision"]), self._entries(answer))

    def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, operation: Ulid | None = None
    ) -> int:
        """If all compares hold, do all operations at once."""
        check_transaction(compares, operations)
        compared = list(dict.fromkeys(compare.key for compare in compares))
        body: Body = {
            "compare": [self._compare(compare) for compare in compares],
            "success": [self._request(one) for one in operations],
            # The same transaction reads what it found instead, so that the error tells the truth.
            "failure": [{"request_range": {"key": encode(self._keys + key), "keys_only": True}} for key in compared],
        }
        if operation is not None:
            parse_ulid(operation)
            self._add_record(body, operation, _DONE)
        try:
            answer = self._gateway.call("/v3/kv/txn", body, operation=operation or UNIDENTIFIED)
        except RejectedError as error:
            raise self._rejection(error, operations) from error
        if answer.get("succeeded"):
            return int(answer["header"]["revision"])
        found = [response["response_range"].get("kvs", []) for response in answer["responses"]]
        if operation is not None and (records := found.pop()):
            if decode(records[0]["value"]) == _NEVER:
                raise abandoned(operation)
            return int(records[0]["create_revision"])
        present = {key: self._entry(kvs[0]) for key, kvs in zip(compared, found, strict=True) if kvs}
        for compare in compares:
            actual = present.get(compare.key)
            if (expected := failed(compare, actual)) is not None:
                raise conflict(compare, expected, actual)
        raise CorruptError("etcd refused a transaction whose compares all hold")

    def outcome(self, operation: Ulid) -> int | None:
        """The revision of a recorded transaction, or `None` when it never will have one."""
        body: Body = {"compare": [], "success": [], "failure": []}
        self._add_record(body, parse_ulid(operation), _NEVER)
        try:
            answer = self._gateway.call("/v3/kv/txn", body)
        except RejectedError as error:
            raise self._rejection(error, ()) from error
        if answer.get("succeeded"):
            return None
        record = answer["responses"][0]["response_range"]["kvs"][0]
        return None if decode(record["value"]) == _NEVER else int(record["create_revision"])

    def grant(self, ttl_seconds: float) -> Lease:
        """A new lease, of whole seconds."""
        check_ttl(ttl_seconds)
        answer = self._call("lease/grant", {"TTL": str(math.ceil(ttl_seconds))})
        return Lease(int(answer["ID"]), float(answer["TTL"]))

    def keep_alive(self, lease: int) -> Lease:
        """Start the lease's time anew."""
        check_lease(lease)
        result = self._call("lease/keepalive", {"ID": str(lease)})["result"]
        ttl_seconds = float(result.get("TTL", 0))
        if ttl_seconds <= 0:
            raise lease_expired(lease)
        return Lease(lease, ttl_seconds)

    def revoke(self, lease: int) -> None:
        """End the lease and delete what hangs on it."""
        check_lease(lease)
        try:
            self._gateway.call("/v3/lease/revoke", {"ID": str(lease)})
        except RejectedError as error:
            if error.code != _NOT_FOUND:
                raise _rejected(error) from error

    def watch(self, prefix: str, after_revision: int, timeout_seconds: float) -> Iterator[Batch]:
        """What happens under `prefix` after a revision, until it was quiet for `timeout_seconds`."""
        check_prefix(prefix)
        check_revision(after_revision)
        return self._watch(prefix, after_revision, timeout_seconds)

    def close(self) -> None:
        """Close the connections."""
        self._gateway.close()

    def _watch(self, prefix: str, after_revision: int, timeout_seconds: float) -> Iterator[Batch]:
        # From the revision itself, which we pass over: where history was compacted up to the one after it, etcd
        # would start there without a word, although what was deleted there is forgotten.
        request = {**self._range(prefix), "start_revision": str(max(after_revision, 1))}
        quiet_seconds = max(timeout_seconds, _LEAST_QUIET_SECONDS)
        with self._gateway.stream("/v3/watch", {"create_request": request}, quiet_seconds) as messages:
            for message in messages:
                if message.get("canceled"):
                    if oldest := int(message.get("compact_revision", 0)):
                        raise compacted(after_revision, oldest)
                    raise UnavailableError(f"etcd cancelled the watch: {message.get('cancel_reason', 'no reason')}")
                # One message never splits a revision, but may carry several.
                for revision, group in groupby(message.get("events", ()), lambda one: int(one["kv"]["mod_revision"])):
                    if revision <= after_revision:
                        continue
                    events = sorted((self._event(one) for one in group), key=lambda event: event.key)
                    yield Batch(revision, tuple(events))

    def _call(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        try:
            return self._gateway.call(f"/v3/{path}", body)
        except RejectedError as error:
            raise _rejected(error) from error

    def _range(self, prefix: str) -> dict[str, object]:
        end = prefix_end(self._keys + prefix)
        assert end is not None  # the namespace ends with a slash
        return {"key": encode(self._keys + prefix), "range_end": encode(end)}

    def _compare(self, compare: Compare) -> dict[str, Any]:
        base = {"key": encode(self._keys + compare.key), "result": "EQUAL"}
        match compare:
            case Absent():
                return {**base, "target": "CREATE", "create_revision": "0"}
            case ModifiedAt():
                return {**base, "target": "MOD", "mod_revision": str(compare.mod_revision)}
            case CreatedAt():
                return {**base, "target": "CREATE", "create_revision": str(compare.create_revision)}
            case LeasedBy():
                return {**base, "target": "LEASE", "lease": str(compare.lease)}

    def _request(self, operation: Operation) -> dict[str, Any]:
        key = encode(self._keys + operation.key)
        if isinstance(operation, Put):
            put = {"key": key, "value": encode(operation.value), "lease": str(operation.lease or 0)}
            return {"request_put": put}
        return {"request_delete_range": {"key": key}}

    def _add_record(self, body: Body, operation: Ulid, verdict: bytes) -> None:
        """Record it, unless it is already; then read the record instead, last."""
        key = encode(self._operations + operation)
        put = {"key": key, "value": encode(verdict), "lease": str(self._records.current())}
        body["compare"].append({"key": key, "result": "EQUAL", "target": "CREATE", "create_revision": "0"})
        body["success"].append({"request_put": put})
        body["failure"].append({"request_range": {"key": key}})

    def _rejection(self, error: RejectedError, operations: Sequence[Operation]) -> HeadwaterError:
        if error.code != _NOT_FOUND:
            return _rejected(error)
        for one in operations:
            if isinstance(one, Put) and one.lease is not None:
                answer = self._call("lease/timetolive", {"ID": str(one.lease)})
                if int(answer.get("TTL", 0)) <= 0:
                    return lease_expired(one.lease, one.key)
        self._records.forget()
        return UnavailableError("etcd has lost the lease of recorded operations", hint="try again")

    def _entries(self, answer: Mapping[str, Any]) -> tuple[Entry, ...]:
        return tuple(self._entry(kv) for kv in answer.get("kvs", ()))

    def _entry(self, kv: Mapping[str, Any]) -> Entry:
        return Entry(
            self._key(kv),
            decode(kv.get("value", "")),
            int(kv["create_revision"]),
            int(kv["mod_revision"]),
            int(kv["version"]),
            int(kv["lease"]) if kv.get("lease") else None,
        )

    def _event(self, event: Mapping[str, Any]) -> Event:
        deleted = event.get("type") == "DELETE"
        return Event(self._key(event["kv"]), None if deleted else self._entry(event["kv"]))

    def _key(self, kv: Mapping[str, Any]) -> str:
        return decode(kv["key"]).decode().removeprefix(self._keys)


def _rejected(error: RejectedError) -> UsageError:
    return UsageError(f"etcd rejected the request: {error.message}", code=error.code)
