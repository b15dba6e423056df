"""Protocol version 3: its protobuf messages, as tables.

proto2: a required field is written even if it is zero; an unknown enum value counts as absent, so that without a
required one the message does not parse. ``ReadRequest`` and ``AddRequest`` carry one ``flag``, which is a value and
not a mask. Entries and lists are left in place when read (Kind.VIEW). Source: BookkeeperProtocol.proto.

bkbox's extensions are fields from 1000 on, and a bit of writeFlags, far from where the protocol grows. Java's clients
and bookies skip both. Nothing may depend on the other side knowing them.
"""

from __future__ import annotations

from enum import IntEnum

from bkbox.wire import auth
from bkbox.wire.codes import Code
from bkbox.wire.protobuf import Field, Kind, Label, Message


class ProtocolVersion(IntEnum):
    """Versions that a header can name."""

    VERSION_ONE = 1
    VERSION_TWO = 2
    VERSION_THREE = 3


class Operation(IntEnum):
    """The operations. RANGE_READ_ENTRY, RANGE_ADD_ENTRY and BATCH_READ_ENTRY have no message."""

    READ_ENTRY = 1
    ADD_ENTRY = 2
    RANGE_READ_ENTRY = 3
    RANGE_ADD_ENTRY = 4
    AUTH = 5
    WRITE_LAC = 6
    READ_LAC = 7
    GET_BOOKIE_INFO = 8
    START_TLS = 9
    FORCE_LEDGER = 10
    GET_LIST_OF_ENTRIES_OF_LEDGER = 11
    BATCH_READ_ENTRY = 12


StatusCode = IntEnum("StatusCode", {code.name: code.v3 for code in Code})  # type: ignore[misc]
"""The response codes by their numbers in this version."""


class ReadFlag(IntEnum):
    """ReadRequest.Flag."""

    FENCE_LEDGER = 1
    ENTRY_PIGGYBACK = 2


class AddFlag(IntEnum):
    """AddRequest.Flag."""

    RECOVERY_ADD = 1


DEFERRED_SYNC = 1
"""Bit of AddRequest.writeFlags: respond before the entry is synced."""

SYNCED = 1 << 16
"""Bit of AddRequest.writeFlags, bkbox: respond once the entry is synced, whatever ``ack_after`` is."""

TOTAL_DISK_CAPACITY = 1
FREE_DISK_SPACE = 2
"""Bits of GetBookieInfoRequest.requested."""

_FIELDS_MAX = 64
"""Bound on the fields of one message in a request: two or three times as many as there are."""

_REQUIRED = Label.REQUIRED
_LEDGER_ID = Field(1, "ledgerId", Kind.INT64, _REQUIRED)
_STATUS = Field(1, "status", Kind.ENUM, _REQUIRED, enum=StatusCode)
_RESPONSE_LEDGER = Field(2, "ledgerId", Kind.INT64, _REQUIRED)
_RESPONSE_ENTRY = Field(3, "entryId", Kind.INT64, _REQUIRED)

HEADER = Message(
    "BKPacketHeader",
    Field(1, "version", Kind.ENUM, _REQUIRED, enum=ProtocolVersion),
    Field(2, "operation", Kind.ENUM, _REQUIRED, enum=Operation),
    Field(3, "txnId", Kind.UINT64, _REQUIRED),
    Field(4, "priority", Kind.UINT32),
    fields_max=_FIELDS_MAX,
)
CONTEXT_PAIR = Message(
    "ContextPair",
    Field(1, "key", Kind.STRING, _REQUIRED),
    Field(2, "value", Kind.STRING, _REQUIRED),
    fields_max=_FIELDS_MAX,
)

READ_REQUEST = Message(
    "ReadRequest",
    _LEDGER_ID,
    Field(2, "entryId", Kind.INT64, _REQUIRED),
    Field(3, "masterKey", Kind.BYTES),
    Field(4, "previousLAC", Kind.INT64),
    Field(5, "timeOut", Kind.INT64),
    Field(100, "flag", Kind.ENUM, enum=ReadFlag),
    fields_max=_FIELDS_MAX,
)
ADD_REQUEST = Message(
    "AddRequest",
    _LEDGER_ID,
    Field(2, "entryId", Kind.INT64, _REQUIRED),
    Field(3, "masterKey", Kind.BYTES, _REQUIRED),
    Field(4, "body", Kind.VIEW, _REQUIRED),
    Field(5, "writeFlags", Kind.INT32),
    Field(100, "flag", Kind.ENUM, enum=AddFlag),
    fields_max=_FIELDS_MAX,
)
WRITE_LAC_REQUEST = Message(
    "WriteLacRequest",
    _LEDGER_ID,
    Field(2, "lac", Kind.INT64, _REQUIRED),
    Field(3, "masterKey", Kind.BYTES, _REQUIRED),
    Field(4, "body", Kind.VIEW, _REQUIRED),
    fields_max=_FIELDS_MAX,
)
READ_LAC_REQUEST = Message(
    "ReadLacRequest", _LEDGER_ID, Field(1000, "persisted", Kind.BOOL), fields_max=_FIELDS_MAX
)
FORCE_REQUEST = Message("ForceLedgerRequest", _LEDGER_ID, fields_max=_FIELDS_MAX)
LIST_ENTRIES_REQUEST = Message(
    "GetListOfEntriesOfLedgerRequest", _LEDGER_ID, fields_max=_FIELDS_MAX
)
BOOKIE_INFO_REQUEST = Message(
    "GetBookieInfoRequest", Field(1, "requested", Kind.INT64), fields_max=_FIELDS_MAX
)
START_TLS_REQUEST = Message("StartTLSRequest", fields_max=_FIELDS_MAX)

READ_RESPONSE = Message(
    "ReadResponse",
    _STATUS,
    _RESPONSE_LEDGER,
    _RESPONSE_ENTRY,
    Field(4, "body", Kind.VIEW),
    Field(5, "maxLAC", Kind.INT64),
    Field(6, "lacUpdateTimestamp", Kind.INT64),
)
ADD_RESPONSE = Message("AddResponse", _STATUS, _RESPONSE_LEDGER, _RESPONSE_ENTRY)
WRITE_LAC_RESPONSE = Message("WriteLacResponse", _STATUS, _RESPONSE_LEDGER)
READ_LAC_RESPONSE = Message(
    "ReadLacResponse",
    _STATUS,
    _RESPONSE_LEDGER,
    Field(3, "lacBody", Kind.VIEW),
    Field(4, "lastEntryBody", Kind.VIEW),
    Field(1000, "durableEntry", Kind.INT64),
    Field(1001, "fenced", Kind.BOOL),
    Field(1002, "limbo", Kind.BOOL),
)
FORCE_RESPONSE = Message("ForceLedgerResponse", _STATUS, _RESPONSE_LEDGER)
LIST_ENTRIES_RESPONSE = Message(
    "GetListOfEntriesOfLedgerResponse",
    _STATUS,
    _RESPONSE_LEDGER,
    Field(3, "availabilityOfEntriesOfLedger", Kind.VIEW),
)
BOOKIE_INFO_RESPONSE = Message(
    "GetBookieInfoResponse",
    _STATUS,
    Field(2, "totalDiskCapacity", Kind.INT64),
    Field(3, "freeDiskSpace", Kind.INT64),
)
START_TLS_RESPONSE = Message("StartTLSResponse")


def _part(number: int, name: str, message: Message) -> Field:
    return Field(number, name, Kind.MESSAGE, message=message)


REQUEST = Message(
    "Request",
    Field(1, "header", Kind.MESSAGE, _REQUIRED, message=HEADER),
    _part(100, "readRequest", READ_REQUEST),
    _part(101, "addRequest", ADD_REQUEST),
    _part(102, "authRequest", auth.FORMAT),
    _part(103, "writeLacRequest", WRITE_LAC_REQUEST),
    _part(104, "readLacRequest", READ_LAC_REQUEST),
    _part(105, "getBookieInfoRequest", BOOKIE_INFO_REQUEST),
    _part(106, "startTLSRequest", START_TLS_REQUEST),
    _part(107, "forceLedgerRequest", FORCE_REQUEST),
    _part(108, "getListOfEntriesOfLedgerRequest", LIST_ENTRIES_REQUEST),
    Field(200, "requestContext", Kind.MESSAGE, Label.REPEATED, message=CONTEXT_PAIR),
    fields_max=_FIELDS_MAX,
)
RESPONSE = Message(
    "Response",
    Field(1, "header", Kind.MESSAGE, _REQUIRED, message=HEADER),
    Field(2, "status", Kind.ENUM, _REQUIRED, enum=StatusCode),
    _part(100, "readResponse", READ_RESPONSE),
    _part(101, "addResponse", ADD_RESPONSE),
    _part(102, "authResponse", auth.FORMAT),
    _part(103, "writeLacResponse", WRITE_LAC_RESPONSE),
    _part(104, "readLacResponse", READ_LAC_RESPONSE),
    _part(105, "getBookieInfoResponse", BOOKIE_INFO_RESPONSE),
    _part(106, "startTLSResponse", START_TLS_RESPONSE),
    _part(107, "forceLedgerResponse", FORCE_RESPONSE),
    _part(108, "getListOfEntriesOfLedgerResponse", LIST_ENTRIES_RESPONSE),
)
