"""Protocol version 3: every request and response as a value, and its bytes.

A body is one protobuf message (v3_format.py): a header with version, operation, transaction id and priority, and one
part that belongs to the operation. The values hold that part; responses are matched by transaction id alone.

Decoding a request has three outcomes, which BookKeeper's bookie distinguishes (BookieProtoEncoding.java,
BookieRequestProcessor.java):

- EncodingError: not a message of this version; the connection speaks version 2 from here on;
- FrameError: a message without the part that its operation needs; the connection has to be closed;
- a value. A header of another version (``header.version``) is answered with EBADVERSION, and Unserved with EBADREQ.

Every response carries its status twice, in the message and in its part. It carries the part also if the operation
failed, because clients take the ids from there; only ``Refused`` has none. Functions that begin with ``encode`` give
whole frames, length prefix included.
"""

from __future__ import annotations

from typing import NamedTuple

from bkbox.base.values import frozen_struct
from bkbox.errors import FrameError
from bkbox.wire import frames, protobuf
from bkbox.wire.auth import AuthMessage
from bkbox.wire.codes import Code, code_from_v3
from bkbox.wire.protobuf import Values
from bkbox.wire.v3_format import (
    DEFERRED_SYNC,
    FREE_DISK_SPACE,
    REQUEST,
    RESPONSE,
    SYNCED,
    TOTAL_DISK_CAPACITY,
    AddFlag,
    Operation,
    ProtocolVersion,
    ReadFlag,
)

CURRENT_VERSION = int(ProtocolVersion.VERSION_THREE)
HIGH_PRIORITY = 100
"""Priority of the requests of a recovery; every value above 0 is a high one."""

FIRST_BYTE_MIN = 8
"""A first byte below this cannot begin a protobuf message: the body is of version 2."""

Buffer = bytes | bytearray | memoryview

# Looked up once: access to members of enums is slow.
_EOK = Code.EOK
_AUTH = Operation.AUTH
_RECOVERY_ADD = AddFlag.RECOVERY_ADD
_FENCE_LEDGER = ReadFlag.FENCE_LEDGER
_ENTRY_PIGGYBACK = ReadFlag.ENTRY_PIGGYBACK


class Header(NamedTuple):
    """The header of every request. ``txn_id``: 0 to 2**64 - 1; ``priority``: above 0 is high."""

    operation: Operation
    txn_id: int
    priority: int = 0
    version: int = CURRENT_VERSION


# ---- requests -----------------------------------------------------------------------------------


@frozen_struct
class AddRequest:
    """Store an entry. The ids are those beside the entry, which has its own in its header. ``synced`` (bkbox):
    respond once it is on disk, in every mode.
    """

    header: Header
    ledger_id: int
    entry_id: int
    master_key: bytes
    entry: Buffer
    recovery: bool = False
    deferred_sync: bool = False
    synced: bool = False

    @property
    def high_priority(self) -> bool:
        return self.header.priority > 0


@frozen_struct
class ReadRequest:
    """Read an entry (-1: the last one); fence the ledger first if ``fencing``; wait for a LAC above ``previous_lac``
    if that is given and it is not fencing.

    ``timeout_ms`` None: no wait. ``piggyback``: respond with the entry after ``previous_lac``.
    """

    header: Header
    ledger_id: int
    entry_id: int
    master_key: bytes | None = None
    fencing: bool = False
    piggyback: bool = False
    previous_lac: int | None = None
    timeout_ms: int | None = None

    @property
    def long_poll(self) -> bool:
        return self.previous_lac is not None and not self.fencing


@frozen_struct
class WriteLacRequest:
    """Store ``body`` (ledger id, LAC, digest) as the ledger's explicit LAC; ``lac`` repeats it."""

    header: Header
    ledger_id: int
    lac: int
    master_key: bytes
    body: Buffer


@frozen_struct
class ReadLacRequest:
    """Read the explicit LAC and the last entry; ``persisted`` (bkbox): once everything that the bookie had
    acknowledged is on disk.
    """

    header: Header
    ledger_id: int
    persisted: bool = False


@frozen_struct
class ForceRequest:
    """Sync everything that was acknowledged before."""

    header: Header
    ledger_id: int


@frozen_struct
class ListEntriesRequest:
    """List the entries of the ledger that the bookie has."""

    header: Header
    ledger_id: int


@frozen_struct
class BookieInfoRequest:
    """Read the sizes of the bookie's disks, in bytes, as far as wanted."""

    header: Header
    wants_total: bool = True
    wants_free: bool = True


@frozen_struct
class AuthRequest:
    """One step of an authentication; a request may come without one."""

    header: Header
    message: AuthMessage | None


@frozen_struct
class StartTlsRequest:
    """Speak TLS from here on."""

    header: Header


@frozen_struct
class Unserved:
    """An operation that exists in name only."""

    header: Header


LedgerRequest = (
    AddRequest | ReadRequest | WriteLacRequest | ReadLacRequest | ForceRequest | ListEntriesRequest
)
"""A request about one ledger."""

Request = LedgerRequest | BookieInfoRequest | AuthRequest | StartTlsRequest | Unserved


# ---- responses ----------------------------------------------------------------------------------


@frozen_struct
class AddResponse:
    """Response to an add."""

    txn_id: int
    code: Code
    ledger_id: int
    entry_id: int


@frozen_struct
class ReadResponse:
    """Response to a read. ``entry_id`` is that of the request; in the response to a long poll that of the entry, or
    -1. ``lac_updated_ms``: when the LAC advanced, ms since 1970.
    """

    txn_id: int
    code: Code
    ledger_id: int
    entry_id: int
    entry: Buffer | None = None
    max_lac: int | None = None
    lac_updated_ms: int | None = None


@frozen_struct
class WriteLacResponse:
    """Response to a write of the LAC."""

    txn_id: int
    code: Code
    ledger_id: int


@frozen_struct
class ReadLacResponse:
    """Response to a read of the LAC: the packet that was written, and the last entry.

    From bkbox's bookies, whatever the code: whether the ledger is ``fenced`` and in ``limbo`` there (None if the
    bookie does not know it, or is another one). In the response to a persisted request ``durable_entry`` is the last
    entry that the bookie had when the request came: that one and everything else that it had then are on disk; -1 for
    no entry at all.
    """

    txn_id: int
    code: Code
    ledger_id: int
    lac_body: Buffer | None = None
    last_entry: Buffer | None = None
    durable_entry: int | None = None
    fenced: bool | None = None
    limbo: bool | None = None


@frozen_struct
class ForceResponse:
    """Response to a force."""

    txn_id: int
    code: Code
    ledger_id: int


@frozen_struct
class ListEntriesResponse:
    """Response to a request for the list of entries: see availability.py. Beside a code that says that the bookie
    cannot tell (limbo) a list names the present entries, and says nothing about the rest.
    """

    txn_id: int
    code: Code
    ledger_id: int
    availability: Buffer | None = None


@frozen_struct
class BookieInfoResponse:
    """Response to a request for sizes, in bytes; None for sizes that were not requested."""

    txn_id: int
    code: Code
    total_bytes: int | None = None
    free_bytes: int | None = None


@frozen_struct
class AuthResponse:
    """One step of an authentication; it echoes the header of the request."""

    header: Header
    code: Code
    message: AuthMessage | None


@frozen_struct
class StartTlsResponse:
    """The connection speaks TLS from the next byte on."""

    txn_id: int


@frozen_struct
class Refused:
    """A response without a part, with the header of the request."""

    header: Header
    code: Code


Response = (
    AddResponse
    | ReadResponse
    | WriteLacResponse
    | ReadLacResponse
    | ForceResponse
    | ListEntriesResponse
    | BookieInfoResponse
    | AuthResponse
    | StartTlsResponse
    | Refused
)


# ---- requests and their bytes -------------------------------------------------------------------


def decode_request(body: Buffer) -> Request:
    """The request in a body; an entry in it stays in place. Raises EncodingError, FrameError."""
    values = protobuf.decode(REQUEST, body)
    header = _header_of(values)
    match header.operation:
        case Operation.ADD_ENTRY:
            part = _part(values, "addRequest")
            flags = part.get("writeFlags", 0)
            return AddRequest(
                header,
                part["ledgerId"],
                part["entryId"],
                part["masterKey"],
                part["body"],
                recovery=part.get("flag") is _RECOVERY_ADD,
                deferred_sync=bool(flags & DEFERRED_SYNC),
                synced=bool(flags & SYNCED),
            )
        case Operation.READ_ENTRY:
            part = _part(values, "readRequest")
            return ReadRequest(
                header,
                part["ledgerId"],
                part["entryId"],
                part.get("masterKey"),
                fencing=part.get("flag") is _FENCE_LEDGER,
                piggyback=part.get("flag") is _ENTRY_PIGGYBACK,
                previous_lac=part.get("previousLAC"),
                timeout_ms=part.get("timeOut"),
            )
        case Operation.WRITE_LAC:
            part = _part(values, "writeLacRequest")
            return WriteLacRequest(
                header, part["ledgerId"], part["lac"], part["masterKey"], part["body"]
            )
        case Operation.READ_LAC:
            part = _part(values, "readLacRequest")
            return ReadLacRequest(header, part["ledgerId"], part.get("persisted", False))
        case Operation.FORCE_LEDGER:
            return ForceRequest(header, _part(values, "forceLedgerRequest")["ledgerId"])
        case Operation.GET_LIST_OF_ENTRIES_OF_LEDGER:
            part = _part(values, "getListOfEntriesOfLedgerRequest")
            return ListEntriesRequest(header, part["ledgerId"])
        case Operation.GET_BOOKIE_INFO:
            requested = values.get("getBookieInfoRequest", {}).get("requested", 0)
            return BookieInfoRequest(
                header, bool(requested & TOTAL_DISK_CAPACITY), bool(requested & FREE_DISK_SPACE)
            )
        case Operation.AUTH:
            return AuthRequest(header, _auth_of(values.get("authRequest")))
        case Operation.START_TLS:
            return StartTlsRequest(header)
        case _:
            return Unserved(header)


def _header_of(values: Values) -> Header:
    header = values["header"]
    return Header(
        header["operation"], header["txnId"], header.get("priority", 0), int(header["version"])
    )


def _part(values: Values, name: str) -> Values:
    part: Values | None = values.get(name)
    if part is None:
        raise FrameError(f"a message of version 3 without its {name}")
    return part


def _auth_of(part: Values | None) -> AuthMessage | None:
    return None if part is None else AuthMessage(part["authPluginName"], part["payload"])


def encode_request(request: Request) -> bytes:
    """The whole frame."""
    values: Values = {"header": _header_values(request.header)}
    match request:
        case AddRequest():
            values["addRequest"] = {
                "ledgerId": request.ledger_id,
                "entryId": request.entry_id,
                "masterKey": request.master_key,
                "body": request.entry,
                "writeFlags": DEFERRED_SYNC * request.deferred_sync + SYNCED * request.synced
                or None,
                "flag": _RECOVERY_ADD if request.recovery else None,
            }
        case ReadRequest():
            flag = _ENTRY_PIGGYBACK if request.piggyback else None
            values["readRequest"] = {
                "ledgerId": request.ledger_id,
                "entryId": request.entry_id,
                "masterKey": request.master_key,
                "previousLAC": request.previous_lac,
                "timeOut": request.timeout_ms,
                "flag": _FENCE_LEDGER if request.fencing else flag,
            }
        case WriteLacRequest():
            values["writeLacRequest"] = {
                "ledgerId": request.ledger_id,
                "lac": request.lac,
                "masterKey": request.master_key,
                "body": request.body,
            }
        case ReadLacRequest():
            values["readLacRequest"] = {
                "ledgerId": request.ledger_id,
                "persisted": request.persisted or None,
            }
        case ForceRequest():
            values["forceLedgerRequest"] = {"ledgerId": request.ledger_id}
        case ListEntriesRequest():
            values["getListOfEntriesOfLedgerRequest"] = {"ledgerId": request.ledger_id}
        case BookieInfoRequest():
            requested = (
                TOTAL_DISK_CAPACITY * request.wants_total + FREE_DISK_SPACE * request.wants_free
            )
            values["getBookieInfoRequest"] = {"requested": requested or None}
        case AuthRequest():
            values["authRequest"] = _auth_values(request.message)
        case StartTlsRequest():
            values["startTLSRequest"] = {}
        case Unserved():
            pass
    return frames.frame(protobuf.encode(REQUEST, values))


def _header_values(header: Header) -> Values:
    return {
        "version": header.version,
        "operation": header.operation,
        "txnId": header.txn_id,
        "priority": header.priority or None,
    }


def _auth_values(message: AuthMessage | None) -> Values | None:
    if message is None:
        return None
    return {"authPluginName": message.plugin, "payload": message.payload}


# ---- responses and their bytes ------------------------------------------------------------------

_RESPONSE_PARTS: dict[type[Response], tuple[Operation, str]] = {
    AddResponse: (Operation.ADD_ENTRY, "addResponse"),
    ReadResponse: (Operation.READ_ENTRY, "readResponse"),
    WriteLacResponse: (Operation.WRITE_LAC, "writeLacResponse"),
    ReadLacResponse: (Operation.READ_LAC, "readLacResponse"),
    ForceResponse: (Operation.FORCE_LEDGER, "forceLedgerResponse"),
    ListEntriesResponse: (
        Operation.GET_LIST_OF_ENTRIES_OF_LEDGER,
        "getListOfEntriesOfLedgerResponse",
    ),
    BookieInfoResponse: (Operation.GET_BOOKIE_INFO, "getBookieInfoResponse"),
    StartTlsResponse: (Operation.START_TLS, "startTLSResponse"),
}
_RESPONSE_OF = {operation: (kind, name) for kind, (operation, name) in _RESPONSE_PARTS.items()}


def encode_response(response: Response) -> bytes:
    """The whole frame."""
    if isinstance(response, Refused | AuthResponse):
        values: Values = {"header": _header_values(response.header), "status": response.code.v3}
        if isinstance(response, AuthResponse):
            values["authResponse"] = _auth_values(response.message)
        return frames.frame(protobuf.encode(RESPONSE, values))
    operation, name = _RESPONSE_PARTS[type(response)]
    code = _EOK if isinstance(response, StartTlsResponse) else response.code
    values = {
        "header": _header_values(Header(operation, response.txn_id)),
        "status": code.v3,
        name: {"status": code.v3, **_response_values(response)},
    }
    return frames.frame(protobuf.encode(RESPONSE, values))


def _response_values(response: Response) -> Values:
    """The part of a response, except its status."""
    match response:
        case AddResponse():
            return {"ledgerId": response.ledger_id, "entryId": response.entry_id}
        case ReadResponse():
            return {
                "ledgerId": response.ledger_id,
                "entryId": response.entry_id,
                "body": response.entry,
                "maxLAC": response.max_lac,
                "lacUpdateTimestamp": response.lac_updated_ms,
            }
        case ReadLacResponse():
            return {
                "ledgerId": response.ledger_id,
                "lacBody": response.lac_body,
                "lastEntryBody": response.last_entry,
                "durableEntry": response.durable_entry,
                "fenced": response.fenced,
                "limbo": response.limbo,
            }
        case ListEntriesResponse():
            return {
                "ledgerId": response.ledger_id,
                "availabilityOfEntriesOfLedger": response.availability,
            }
        case BookieInfoResponse():
            return {
                "totalDiskCapacity": response.total_bytes,
                "freeDiskSpace": response.free_bytes,
            }
        case WriteLacResponse() | ForceResponse():
            return {"ledgerId": response.ledger_id}
        case _:
            return {}


def decode_response(body: Buffer) -> Response:
    """The response in a body; entries in it stay in place. Raises EncodingError.

    Of two different statuses the one that is not EOK counts. A response without the part of its operation is Refused,
    whatever its code: an EOK without a part says nothing. So is a START_TLS that was not accepted, with or without
    its part.
    """
    values = protobuf.decode(RESPONSE, body)
    header = _header_of(values)
    code = _code_of(values)
    if header.operation is _AUTH:
        return AuthResponse(header, code, _auth_of(values.get("authResponse")))
    kind, name = _RESPONSE_OF.get(header.operation, (None, ""))
    part = values.get(name)
    if kind is None or part is None or (kind is StartTlsResponse and code is not _EOK):
        return Refused(header, code)
    if code is _EOK and "status" in part:
        code = _code_of(part)
    return _response_of(kind, header.txn_id, code, part)


def _code_of(values: Values) -> Code:
    code = code_from_v3(values["status"])
    assert code is not None  # the codes are those of the enum of the format
    return code


def _response_of(kind: type[Response], txn_id: int, code: Code, part: Values) -> Response:
    if kind is StartTlsResponse:
        return StartTlsResponse(txn_id)
    if kind is BookieInfoResponse:
        total, free = part.get("totalDiskCapacity"), part.get("freeDiskSpace")
        return BookieInfoResponse(txn_id, code, total, free)
    ledger: int = part["ledgerId"]
    if kind is AddResponse:
        return AddResponse(txn_id, code, ledger, part["entryId"])
    if kind is ReadResponse:
        body, lac = part.get("body"), part.get("maxLAC")
        moved = part.get("lacUpdateTimestamp")
        return ReadResponse(txn_id, code, ledger, part["entryId"], body, lac, moved)
    if kind is ReadLacResponse:
        lac_body, last = part.get("lacBody"), part.get("lastEntryBody")
        durable, fenced, limbo = part.get("durableEntry"), part.get("fenced"), part.get("limbo")
        return ReadLacResponse(txn_id, code, ledger, lac_body, last, durable, fenced, limbo)
    if kind is ListEntriesResponse:
        listed = part.get("availabilityOfEntriesOfLedger")
        return ListEntriesResponse(txn_id, code, ledger, listed)
    return (
        WriteLacResponse(txn_id, code, ledger)
        if kind is WriteLacResponse
        else ForceResponse(txn_id, code, ledger)
    )


# ---- refusals -----------------------------------------------------------------------------------


def refusal(request: Request, code: Code) -> Response:
    """The response that refuses a request with this code."""
    txn = request.header.txn_id
    match request:
        case AddRequest():
            return AddResponse(txn, code, request.ledger_id, request.entry_id)
        case ReadRequest():
            return ReadResponse(txn, code, request.ledger_id, request.entry_id)
        case WriteLacRequest():
            return WriteLacResponse(txn, code, request.ledger_id)
        case ReadLacRequest():
            return ReadLacResponse(txn, code, request.ledger_id)
        case ForceRequest():
            return ForceResponse(txn, code, request.ledger_id)
        case ListEntriesRequest():
            return ListEntriesResponse(txn, code, request.ledger_id)
        case BookieInfoRequest():
            return BookieInfoResponse(txn, code)
        case _:
            return Refused(request.header, code)
