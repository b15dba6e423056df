"""The messages of Oxia's protocol, as far as they are used here. They are proto3: a number that is absent is 0.

The service has two names. ``io.streamnative.oxia.proto`` is the older one, which every server knows and every client
of Oxia's uses.

Source: client.proto.
"""

from __future__ import annotations

from enum import IntEnum

from bkbox.wire.protobuf import Field, Kind, Label, Message

SERVICE = "io.streamnative.oxia.proto.OxiaClient"

ABSENT = -1
"""As the expected version of a record: there is none."""


class Status(IntEnum):
    """The outcome of one read or write of a batch."""

    OK = 0
    KEY_NOT_FOUND = 1
    UNEXPECTED_VERSION_ID = 2
    SESSION_DOES_NOT_EXIST = 3


class KeyRouter(IntEnum):
    """The function that maps keys to shards."""

    UNKNOWN = 0
    XXHASH3 = 1


class NotificationType(IntEnum):
    """What has happened to a key."""

    KEY_CREATED = 0
    KEY_MODIFIED = 1
    KEY_DELETED = 2
    KEY_RANGE_DELETED = 3


def _many(number: int, name: str, message: Message) -> Field:
    return Field(number, name, Kind.MESSAGE, Label.REPEATED, message=message)


# ---- shards -------------------------------------------------------------------------------------

SHARD_ASSIGNMENTS_REQUEST = Message("ShardAssignmentsRequest", Field(1, "namespace", Kind.STRING))
HASH_RANGE = Message("Int32HashRange", Field(1, "min", Kind.FIXED32), Field(2, "max", Kind.FIXED32))
SHARD_ASSIGNMENT = Message(
    "ShardAssignment",
    Field(1, "shard", Kind.INT64),
    Field(2, "leader", Kind.STRING),
    Field(3, "hash_range", Kind.MESSAGE, message=HASH_RANGE),
)
NAMESPACE = Message(
    "NamespaceShardsAssignment",
    _many(1, "assignments", SHARD_ASSIGNMENT),
    Field(2, "router", Kind.ENUM, enum=KeyRouter),
)
NAMESPACE_ENTRY = Message(
    "namespaces", Field(1, "key", Kind.STRING), Field(2, "value", Kind.MESSAGE, message=NAMESPACE)
)
SHARD_ASSIGNMENTS = Message("ShardAssignments", _many(1, "namespaces", NAMESPACE_ENTRY))

# ---- records ------------------------------------------------------------------------------------

VERSION = Message(
    "Version",
    Field(1, "version_id", Kind.INT64),
    Field(2, "modifications", Kind.INT64),
    Field(3, "created_ms", Kind.FIXED64),
    Field(4, "modified_ms", Kind.FIXED64),
    Field(5, "session_id", Kind.INT64),
    Field(6, "client_identity", Kind.STRING),
)
PUT = Message(
    "PutRequest",
    Field(1, "key", Kind.STRING),
    Field(2, "value", Kind.BYTES),
    Field(3, "expected_version_id", Kind.INT64),
    Field(4, "session_id", Kind.INT64),
    Field(5, "client_identity", Kind.STRING),
)
DELETE = Message(
    "DeleteRequest",
    Field(1, "key", Kind.STRING),
    Field(2, "expected_version_id", Kind.INT64),
)
WRITE_REQUEST = Message(
    "WriteRequest",
    Field(1, "shard", Kind.INT64),
    _many(2, "puts", PUT),
    _many(3, "deletes", DELETE),
)
PUT_RESPONSE = Message(
    "PutResponse",
    Field(1, "status", Kind.ENUM, enum=Status, strict=True),
    Field(2, "version", Kind.MESSAGE, message=VERSION),
    Field(3, "key", Kind.STRING),
)
DELETE_RESPONSE = Message("DeleteResponse", Field(1, "status", Kind.ENUM, enum=Status, strict=True))
WRITE_RESPONSE = Message(
    "WriteResponse",
    _many(1, "puts", PUT_RESPONSE),
    _many(2, "deletes", DELETE_RESPONSE),
)
GET = Message("GetRequest", Field(1, "key", Kind.STRING), Field(2, "include_value", Kind.BOOL))
READ_REQUEST = Message("ReadRequest", Field(1, "shard", Kind.INT64), _many(2, "gets", GET))
GET_RESPONSE = Message(
    "GetResponse",
    Field(1, "status", Kind.ENUM, enum=Status, strict=True),
    Field(2, "version", Kind.MESSAGE, message=VERSION),
    Field(3, "value", Kind.BYTES),
    Field(4, "key", Kind.STRING),
)
READ_RESPONSE = Message("ReadResponse", _many(1, "gets", GET_RESPONSE))
LIST_REQUEST = Message(
    "ListRequest",
    Field(1, "shard", Kind.INT64),
    Field(2, "start_inclusive", Kind.STRING),
    Field(3, "end_exclusive", Kind.STRING),
)
LIST_RESPONSE = Message("ListResponse", Field(1, "keys", Kind.STRING, Label.REPEATED))
RANGE_SCAN_REQUEST = LIST_REQUEST
RANGE_SCAN_RESPONSE = Message("RangeScanResponse", _many(1, "records", GET_RESPONSE))

# ---- sessions -----------------------------------------------------------------------------------

CREATE_SESSION_REQUEST = Message(
    "CreateSessionRequest",
    Field(1, "shard", Kind.INT64),
    Field(2, "session_timeout_ms", Kind.UINT32),
    Field(3, "client_identity", Kind.STRING),
)
CREATE_SESSION_RESPONSE = Message("CreateSessionResponse", Field(1, "session_id", Kind.INT64))
SESSION = Message("Session", Field(1, "shard", Kind.INT64), Field(2, "session_id", Kind.INT64))
"""SessionHeartbeat and CloseSessionRequest."""
EMPTY = Message("Empty")
"""KeepAliveResponse and CloseSessionResponse."""

# ---- notifications ------------------------------------------------------------------------------

NOTIFICATIONS_REQUEST = Message(
    "NotificationsRequest",
    Field(1, "shard", Kind.INT64),
    Field(2, "start_offset_exclusive", Kind.INT64),
)
NOTIFICATION = Message(
    "Notification",
    Field(1, "type", Kind.ENUM, enum=NotificationType),
    Field(2, "version_id", Kind.INT64),
    Field(3, "key_range_last", Kind.STRING),
)
NOTIFICATION_ENTRY = Message(
    "notifications",
    Field(1, "key", Kind.STRING),
    Field(2, "value", Kind.MESSAGE, message=NOTIFICATION),
)
NOTIFICATION_BATCH = Message(
    "NotificationBatch",
    Field(1, "shard", Kind.INT64),
    Field(2, "offset", Kind.INT64),
    Field(3, "timestamp_ms", Kind.FIXED64),
    _many(4, "notifications", NOTIFICATION_ENTRY),
)

# ---- details of errors: google.rpc.Status ---------------------------------------------------------

ERROR_INFO_TYPE = "type.googleapis.com/google.rpc.ErrorInfo"
LEADER_HINT_TYPE = "LeaderHint"
"""End of the type's name: servers before 0.17 say so."""

ANY = Message("Any", Field(1, "type_url", Kind.STRING), Field(2, "value", Kind.BYTES))
RPC_STATUS = Message(
    "Status",
    Field(1, "code", Kind.INT32),
    Field(2, "message", Kind.STRING),
    _many(3, "details", ANY),
)
TEXT_ENTRY = Message("metadata", Field(1, "key", Kind.STRING), Field(2, "value", Kind.STRING))
ERROR_INFO = Message(
    "ErrorInfo",
    Field(1, "reason", Kind.STRING),
    Field(2, "domain", Kind.STRING),
    _many(3, "metadata", TEXT_ENTRY),
)
LEADER_HINT = Message("LeaderHint", Field(1, "shard", Kind.INT64), Field(2, "leader", Kind.STRING))
