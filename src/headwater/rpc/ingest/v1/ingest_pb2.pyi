from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReplayMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLAY_MODE_UNSPECIFIED: _ClassVar[ReplayMode]
    REPLAY_MODE_VIRTUAL_NODE: _ClassVar[ReplayMode]
    REPLAY_MODE_NODE: _ClassVar[ReplayMode]

class LifecycleState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LIFECYCLE_STATE_UNSPECIFIED: _ClassVar[LifecycleState]
    LIFECYCLE_STATE_RECOVERING: _ClassVar[LifecycleState]
    LIFECYCLE_STATE_READY: _ClassVar[LifecycleState]
    LIFECYCLE_STATE_FAILED: _ClassVar[LifecycleState]
REPLAY_MODE_UNSPECIFIED: ReplayMode
REPLAY_MODE_VIRTUAL_NODE: ReplayMode
REPLAY_MODE_NODE: ReplayMode
LIFECYCLE_STATE_UNSPECIFIED: LifecycleState
LIFECYCLE_STATE_RECOVERING: LifecycleState
LIFECYCLE_STATE_READY: LifecycleState
LIFECYCLE_STATE_FAILED: LifecycleState

class TableUpdate(_message.Message):
    __slots__ = ("table", "virtual_node", "key_timestamp", "deletes", "inserts", "updates")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_NODE_FIELD_NUMBER: _ClassVar[int]
    KEY_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    INSERTS_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    table: str
    virtual_node: int
    key_timestamp: int
    deletes: bytes
    inserts: bytes
    updates: bytes
    def __init__(self, table: _Optional[str] = ..., virtual_node: _Optional[int] = ..., key_timestamp: _Optional[int] = ..., deletes: _Optional[bytes] = ..., inserts: _Optional[bytes] = ..., updates: _Optional[bytes] = ...) -> None: ...

class ReplayContext(_message.Message):
    __slots__ = ("recovery_attempt_token", "checkpoint_id", "mode")
    RECOVERY_ATTEMPT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    recovery_attempt_token: str
    checkpoint_id: str
    mode: ReplayMode
    def __init__(self, recovery_attempt_token: _Optional[str] = ..., checkpoint_id: _Optional[str] = ..., mode: _Optional[_Union[ReplayMode, str]] = ...) -> None: ...

class UpdateRecordRequest(_message.Message):
    __slots__ = ("timestamp", "sequence", "updates", "topology_hash", "replay")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_HASH_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    timestamp: int
    sequence: int
    updates: _containers.RepeatedCompositeFieldContainer[TableUpdate]
    topology_hash: str
    replay: ReplayContext
    def __init__(self, timestamp: _Optional[int] = ..., sequence: _Optional[int] = ..., updates: _Optional[_Iterable[_Union[TableUpdate, _Mapping]]] = ..., topology_hash: _Optional[str] = ..., replay: _Optional[_Union[ReplayContext, _Mapping]] = ...) -> None: ...

class UpdateRecordResponse(_message.Message):
    __slots__ = ("timestamp", "sequence")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    timestamp: int
    sequence: int
    def __init__(self, timestamp: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class AddWriteBufferRequest(_message.Message):
    __slots__ = ("table", "virtual_node")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_NODE_FIELD_NUMBER: _ClassVar[int]
    table: str
    virtual_node: int
    def __init__(self, table: _Optional[str] = ..., virtual_node: _Optional[int] = ...) -> None: ...

class AddWriteBufferResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Predicate(_message.Message):
    __slots__ = ("column", "comparison", "boolean", "integer", "real", "text", "binary")
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    REAL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BINARY_FIELD_NUMBER: _ClassVar[int]
    column: str
    comparison: str
    boolean: bool
    integer: int
    real: float
    text: str
    binary: bytes
    def __init__(self, column: _Optional[str] = ..., comparison: _Optional[str] = ..., boolean: _Optional[bool] = ..., integer: _Optional[int] = ..., real: _Optional[float] = ..., text: _Optional[str] = ..., binary: _Optional[bytes] = ...) -> None: ...

class ScanRequest(_message.Message):
    __slots__ = ("table", "timestamp", "columns", "predicates", "virtual_nodes", "topology_hash")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    PREDICATES_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_NODES_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_HASH_FIELD_NUMBER: _ClassVar[int]
    table: str
    timestamp: int
    columns: _containers.RepeatedScalarFieldContainer[str]
    predicates: _containers.RepeatedCompositeFieldContainer[Predicate]
    virtual_nodes: _containers.RepeatedScalarFieldContainer[int]
    topology_hash: str
    def __init__(self, table: _Optional[str] = ..., timestamp: _Optional[int] = ..., columns: _Optional[_Iterable[str]] = ..., predicates: _Optional[_Iterable[_Union[Predicate, _Mapping]]] = ..., virtual_nodes: _Optional[_Iterable[int]] = ..., topology_hash: _Optional[str] = ...) -> None: ...

class ScanResponse(_message.Message):
    __slots__ = ("piece",)
    PIECE_FIELD_NUMBER: _ClassVar[int]
    piece: bytes
    def __init__(self, piece: _Optional[bytes] = ...) -> None: ...

class RowGroup(_message.Message):
    __slots__ = ("file_id", "row_group")
    FILE_ID_FIELD_NUMBER: _ClassVar[int]
    ROW_GROUP_FIELD_NUMBER: _ClassVar[int]
    file_id: int
    row_group: int
    def __init__(self, file_id: _Optional[int] = ..., row_group: _Optional[int] = ...) -> None: ...

class QueryVisibilityRequest(_message.Message):
    __slots__ = ("timestamp", "row_groups")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ROW_GROUPS_FIELD_NUMBER: _ClassVar[int]
    timestamp: int
    row_groups: _containers.RepeatedCompositeFieldContainer[RowGroup]
    def __init__(self, timestamp: _Optional[int] = ..., row_groups: _Optional[_Iterable[_Union[RowGroup, _Mapping]]] = ...) -> None: ...

class RowGroupVisibility(_message.Message):
    __slots__ = ("row_group", "base_timestamp", "deleted")
    ROW_GROUP_FIELD_NUMBER: _ClassVar[int]
    BASE_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    row_group: RowGroup
    base_timestamp: int
    deleted: bytes
    def __init__(self, row_group: _Optional[_Union[RowGroup, _Mapping]] = ..., base_timestamp: _Optional[int] = ..., deleted: _Optional[bytes] = ...) -> None: ...

class QueryVisibilityResponse(_message.Message):
    __slots__ = ("row_groups",)
    ROW_GROUPS_FIELD_NUMBER: _ClassVar[int]
    row_groups: _containers.RepeatedCompositeFieldContainer[RowGroupVisibility]
    def __init__(self, row_groups: _Optional[_Iterable[_Union[RowGroupVisibility, _Mapping]]] = ...) -> None: ...

class GetWriteBufferRequest(_message.Message):
    __slots__ = ("table", "virtual_node", "timestamp")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_NODE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    table: str
    virtual_node: int
    timestamp: int
    def __init__(self, table: _Optional[str] = ..., virtual_node: _Optional[int] = ..., timestamp: _Optional[int] = ...) -> None: ...

class GetWriteBufferResponse(_message.Message):
    __slots__ = ("file_ids", "piece")
    FILE_IDS_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    file_ids: _containers.RepeatedScalarFieldContainer[int]
    piece: bytes
    def __init__(self, file_ids: _Optional[_Iterable[int]] = ..., piece: _Optional[bytes] = ...) -> None: ...

class RegisterOffloadRequest(_message.Message):
    __slots__ = ("timestamp",)
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    timestamp: int
    def __init__(self, timestamp: _Optional[int] = ...) -> None: ...

class RegisterOffloadResponse(_message.Message):
    __slots__ = ("offload_id", "lease_seconds")
    OFFLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    offload_id: int
    lease_seconds: float
    def __init__(self, offload_id: _Optional[int] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class UnregisterOffloadRequest(_message.Message):
    __slots__ = ("offload_id",)
    OFFLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    offload_id: int
    def __init__(self, offload_id: _Optional[int] = ...) -> None: ...

class UnregisterOffloadResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AddVisibilityRequest(_message.Message):
    __slots__ = ("file_id",)
    FILE_ID_FIELD_NUMBER: _ClassVar[int]
    file_id: int
    def __init__(self, file_id: _Optional[int] = ...) -> None: ...

class AddVisibilityResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StreamStatus(_message.Message):
    __slots__ = ("table", "virtual_node", "applied_timestamp", "applied_sequence", "buffered_rows", "buffered_bytes", "files")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_NODE_FIELD_NUMBER: _ClassVar[int]
    APPLIED_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    APPLIED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BUFFERED_ROWS_FIELD_NUMBER: _ClassVar[int]
    BUFFERED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    table: str
    virtual_node: int
    applied_timestamp: int
    applied_sequence: int
    buffered_rows: int
    buffered_bytes: int
    files: int
    def __init__(self, table: _Optional[str] = ..., virtual_node: _Optional[int] = ..., applied_timestamp: _Optional[int] = ..., applied_sequence: _Optional[int] = ..., buffered_rows: _Optional[int] = ..., buffered_bytes: _Optional[int] = ..., files: _Optional[int] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("node", "state", "topology_hash", "streams", "failure", "recovery_attempt_token", "checkpoint_id", "replay_ts_ready", "tables")
    NODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_HASH_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_ATTEMPT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    REPLAY_TS_READY_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    node: str
    state: LifecycleState
    topology_hash: str
    streams: _containers.RepeatedCompositeFieldContainer[StreamStatus]
    failure: str
    recovery_attempt_token: str
    checkpoint_id: str
    replay_ts_ready: bool
    tables: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[str] = ..., state: _Optional[_Union[LifecycleState, str]] = ..., topology_hash: _Optional[str] = ..., streams: _Optional[_Iterable[_Union[StreamStatus, _Mapping]]] = ..., failure: _Optional[str] = ..., recovery_attempt_token: _Optional[str] = ..., checkpoint_id: _Optional[str] = ..., replay_ts_ready: _Optional[bool] = ..., tables: _Optional[_Iterable[str]] = ...) -> None: ...

class GetRecoveryReplayTsRequest(_message.Message):
    __slots__ = ("recovery_attempt_token", "checkpoint_id", "mode")
    RECOVERY_ATTEMPT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    recovery_attempt_token: str
    checkpoint_id: str
    mode: ReplayMode
    def __init__(self, recovery_attempt_token: _Optional[str] = ..., checkpoint_id: _Optional[str] = ..., mode: _Optional[_Union[ReplayMode, str]] = ...) -> None: ...

class GetRecoveryReplayTsResponse(_message.Message):
    __slots__ = ("virtual_node_replay_from_ts", "node_replay_from_ts")
    class VirtualNodeReplayFromTsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    VIRTUAL_NODE_REPLAY_FROM_TS_FIELD_NUMBER: _ClassVar[int]
    NODE_REPLAY_FROM_TS_FIELD_NUMBER: _ClassVar[int]
    virtual_node_replay_from_ts: _containers.ScalarMap[int, int]
    node_replay_from_ts: int
    def __init__(self, virtual_node_replay_from_ts: _Optional[_Mapping[int, int]] = ..., node_replay_from_ts: _Optional[int] = ...) -> None: ...

class MarkReadyRequest(_message.Message):
    __slots__ = ("recovery_attempt_token", "checkpoint_id")
    RECOVERY_ATTEMPT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    recovery_attempt_token: str
    checkpoint_id: str
    def __init__(self, recovery_attempt_token: _Optional[str] = ..., checkpoint_id: _Optional[str] = ...) -> None: ...

class MarkReadyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListFilesRequest(_message.Message):
    __slots__ = ("table",)
    TABLE_FIELD_NUMBER: _ClassVar[int]
    table: str
    def __init__(self, table: _Optional[str] = ...) -> None: ...

class FileStatus(_message.Message):
    __slots__ = ("file_id", "name", "type", "row_groups", "min_row_id", "max_row_id")
    FILE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ROW_GROUPS_FIELD_NUMBER: _ClassVar[int]
    MIN_ROW_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_ROW_ID_FIELD_NUMBER: _ClassVar[int]
    file_id: int
    name: str
    type: str
    row_groups: int
    min_row_id: int
    max_row_id: int
    def __init__(self, file_id: _Optional[int] = ..., name: _Optional[str] = ..., type: _Optional[str] = ..., row_groups: _Optional[int] = ..., min_row_id: _Optional[int] = ..., max_row_id: _Optional[int] = ...) -> None: ...

class ListFilesResponse(_message.Message):
    __slots__ = ("files",)
    FILES_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[FileStatus]
    def __init__(self, files: _Optional[_Iterable[_Union[FileStatus, _Mapping]]] = ...) -> None: ...

class LookUpKeyRequest(_message.Message):
    __slots__ = ("table", "key", "texts")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    table: str
    key: bytes
    texts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, table: _Optional[str] = ..., key: _Optional[bytes] = ..., texts: _Optional[_Iterable[str]] = ...) -> None: ...

class KeyVersion(_message.Message):
    __slots__ = ("timestamp", "is_tombstone", "row_id", "file_id", "row_group", "offset", "is_located")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    IS_TOMBSTONE_FIELD_NUMBER: _ClassVar[int]
    ROW_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_ID_FIELD_NUMBER: _ClassVar[int]
    ROW_GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    IS_LOCATED_FIELD_NUMBER: _ClassVar[int]
    timestamp: int
    is_tombstone: bool
    row_id: int
    file_id: int
    row_group: int
    offset: int
    is_located: bool
    def __init__(self, timestamp: _Optional[int] = ..., is_tombstone: _Optional[bool] = ..., row_id: _Optional[int] = ..., file_id: _Optional[int] = ..., row_group: _Optional[int] = ..., offset: _Optional[int] = ..., is_located: _Optional[bool] = ...) -> None: ...

class LookUpKeyResponse(_message.Message):
    __slots__ = ("virtual_node", "versions")
    VIRTUAL_NODE_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    virtual_node: int
    versions: _containers.RepeatedCompositeFieldContainer[KeyVersion]
    def __init__(self, virtual_node: _Optional[int] = ..., versions: _Optional[_Iterable[_Union[KeyVersion, _Mapping]]] = ...) -> None: ...

class BeginTransactionRequest(_message.Message):
    __slots__ = ("read_only", "timestamp")
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    read_only: bool
    timestamp: int
    def __init__(self, read_only: _Optional[bool] = ..., timestamp: _Optional[int] = ...) -> None: ...

class BeginTransactionResponse(_message.Message):
    __slots__ = ("transaction_id", "timestamp", "is_resend", "lease_seconds")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    IS_RESEND_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    timestamp: int
    is_resend: bool
    lease_seconds: float
    def __init__(self, transaction_id: _Optional[int] = ..., timestamp: _Optional[int] = ..., is_resend: _Optional[bool] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class BeginTransactionBatchRequest(_message.Message):
    __slots__ = ("count", "read_only")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    count: int
    read_only: bool
    def __init__(self, count: _Optional[int] = ..., read_only: _Optional[bool] = ...) -> None: ...

class BeginTransactionBatchResponse(_message.Message):
    __slots__ = ("transactions",)
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[BeginTransactionResponse]
    def __init__(self, transactions: _Optional[_Iterable[_Union[BeginTransactionResponse, _Mapping]]] = ...) -> None: ...

class CommitTransactionRequest(_message.Message):
    __slots__ = ("transaction_id",)
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    def __init__(self, transaction_id: _Optional[int] = ...) -> None: ...

class CommitTransactionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RollbackTransactionRequest(_message.Message):
    __slots__ = ("transaction_id",)
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    def __init__(self, transaction_id: _Optional[int] = ...) -> None: ...

class RollbackTransactionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class KeepAliveRequest(_message.Message):
    __slots__ = ("timestamp", "transaction_ids")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_IDS_FIELD_NUMBER: _ClassVar[int]
    timestamp: int
    transaction_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, timestamp: _Optional[int] = ..., transaction_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class KeepAliveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetWatermarksRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetWatermarksResponse(_message.Message):
    __slots__ = ("high_watermark", "low_watermark", "read_timestamp", "safe_gc_timestamp")
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOW_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    READ_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    SAFE_GC_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    high_watermark: int
    low_watermark: int
    read_timestamp: int
    safe_gc_timestamp: int
    def __init__(self, high_watermark: _Optional[int] = ..., low_watermark: _Optional[int] = ..., read_timestamp: _Optional[int] = ..., safe_gc_timestamp: _Optional[int] = ...) -> None: ...

class ListOpenWritesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OpenWrite(_message.Message):
    __slots__ = ("transaction_id", "timestamp", "is_resend")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    IS_RESEND_FIELD_NUMBER: _ClassVar[int]
    transaction_id: int
    timestamp: int
    is_resend: bool
    def __init__(self, transaction_id: _Optional[int] = ..., timestamp: _Optional[int] = ..., is_resend: _Optional[bool] = ...) -> None: ...

class ListOpenWritesResponse(_message.Message):
    __slots__ = ("count", "writes")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    count: int
    writes: _containers.RepeatedCompositeFieldContainer[OpenWrite]
    def __init__(self, count: _Optional[int] = ..., writes: _Optional[_Iterable[_Union[OpenWrite, _Mapping]]] = ...) -> None: ...
