"""Protocol version 2: every request and response as a value, and its bytes.

A body begins with one int: version (byte 0), opcode (byte 1), flags (bytes 2 and 3); with version 0 the whole int is
the opcode. Then, by opcode, in bytes:

====================  ===========================================================================
ADD request           master key 20, entry (see digest.py)
READ request          ledger 8, entry 8 (-1: the last one), master key 20 if fencing and version 2
BATCH_READ request    ledger 8, first entry 8, request id 8, max count 4, max size 8,
                      master key as for READ
AUTH                  AuthMessage, both ways, without code or ids
ADD response          code 4, ledger 8, entry 8
READ response         code 4, ledger 8, entry 8 of the request, the entry if the code is EOK
BATCH_READ response   code 4, ledger 8, first entry 8, request id 8, and if EOK
                      per entry: size 4, entry
====================  ===========================================================================

FrameError means that the connection has to be closed. Two errors have a response all the same: a version outside 0..2
(BadVersion) and an ADD of an entry without a whole header (BadAdd). Functions that begin with ``encode`` give whole
frames, length prefix included; functions that decode take bodies. Source: BookieProtocol.java,
BookieProtoEncoding.java (RequestEnDeCoderPreV3, ResponseEnDeCoderPreV3).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from bkbox.base.values import frozen_struct
from bkbox.errors import EncodingError, FrameError
from bkbox.wire import auth
from bkbox.wire.auth import AuthMessage
from bkbox.wire.codes import Code, code_from_v2
from bkbox.wire.frames import PREFIX_BYTES

CURRENT_VERSION = 2

OP_ADD = 1
OP_READ = 2
OP_AUTH = 3
OP_BATCH_READ = 7

FLAG_DO_FENCING = 0x0001
FLAG_RECOVERY_ADD = 0x0002
FLAG_HIGH_PRIORITY = 0x0004

MASTER_KEY_BYTES = 20
"""The key in an add or a fencing read; its derivation from the password: digest.py."""

Buffer = bytes | bytearray | memoryview

_HEADER = Struct(">BBH")
_INT = Struct(">i")
_HEAD = Struct(">iI")  # of a frame: its length, and the packet header
_IDS = Struct(">qq")
_BATCH = Struct(">qqqiq")
_ENTRY_HEAD = Struct(">qqq")
_RESPONSE = Struct(">iIiqq")
_RESPONSE_BODY = Struct(">iqq")
_REQUEST_ID = Struct(">q")

_ADD_ENTRY_AT = _HEADER.size + MASTER_KEY_BYTES
_ENTRY_BYTES_MIN = 24
"""An entry without ledger id, entry id and LAC is answered with EBADREQ."""

_LEAST_BYTES = {
    OP_ADD: _ADD_ENTRY_AT + _IDS.size,
    OP_READ: _HEADER.size + _IDS.size,
    OP_BATCH_READ: _HEADER.size + _BATCH.size,
}
"""The smallest size of a request without a fence key, in bytes."""


# ---- requests -----------------------------------------------------------------------------------


@frozen_struct
class AddRequest:
    """Store an entry; its ids are those in its own header. ``entry`` has 24 bytes or more."""

    version: int
    flags: int
    master_key: bytes
    entry: Buffer

    @property
    def ledger_id(self) -> int:
        return int(_ENTRY_HEAD.unpack_from(self.entry)[0])

    @property
    def entry_id(self) -> int:
        return int(_ENTRY_HEAD.unpack_from(self.entry)[1])

    @property
    def lac(self) -> int:
        return int(_ENTRY_HEAD.unpack_from(self.entry)[2])

    @property
    def recovery(self) -> bool:
        return bool(self.flags & FLAG_RECOVERY_ADD)

    @property
    def high_priority(self) -> bool:
        return bool(self.flags & FLAG_HIGH_PRIORITY)


@frozen_struct
class ReadRequest:
    """Read an entry (-1: the last one), and fence the ledger first if ``fencing``.

    Versions 0 and 1 carry no master key, so that their fencing requests have None.
    """

    version: int
    flags: int
    ledger_id: int
    entry_id: int
    master_key: bytes | None

    @property
    def fencing(self) -> bool:
        return bool(self.flags & FLAG_DO_FENCING)


@frozen_struct
class BatchReadRequest:
    """Read consecutive entries from ``entry_id`` on.

    At most ``max_count`` of them (no bound if <= 0), and no more than fit into ``max_size`` bytes
    of frame.
    """

    version: int
    flags: int
    ledger_id: int
    entry_id: int
    request_id: int
    max_count: int
    max_size: int
    master_key: bytes | None

    @property
    def fencing(self) -> bool:
        return bool(self.flags & FLAG_DO_FENCING)


@frozen_struct
class AuthRequest:
    """One step of an authentication."""

    version: int
    flags: int
    message: AuthMessage


@frozen_struct
class BadVersion:
    """A request of a version that is not served, with the fields that its EBADVERSION response needs."""

    version: int
    opcode: int
    ledger_id: int
    entry_id: int
    request_id: int


@frozen_struct
class BadAdd:
    """An ADD whose entry has ids and nothing else; to be answered with EBADREQ."""

    version: int
    ledger_id: int
    entry_id: int


Request = AddRequest | ReadRequest | BatchReadRequest | AuthRequest


# ---- responses ----------------------------------------------------------------------------------


@frozen_struct
class AddResponse:
    """Response to an ADD."""

    version: int
    code: Code
    ledger_id: int
    entry_id: int


@frozen_struct
class ReadResponse:
    """Response to a READ; ``entry_id`` is that of the request, ``entry`` is present only with EOK."""

    version: int
    code: Code
    ledger_id: int
    entry_id: int
    entry: Buffer | None = None


@frozen_struct
class BatchReadResponse:
    """Response to a BATCH_READ; ``entries`` have consecutive ids from ``entry_id`` on."""

    version: int
    code: Code
    ledger_id: int
    entry_id: int
    request_id: int
    entries: tuple[Buffer, ...] = ()


@frozen_struct
class AuthResponse:
    """One step of an authentication."""

    version: int
    message: AuthMessage


Response = AddResponse | ReadResponse | BatchReadResponse | AuthResponse


# ---- headers ------------------------------------------------------------------------------------


class Header(NamedTuple):
    """The fields that route a request; ``ledger_id`` is -1 for AUTH."""

    opcode: int
    ledger_id: int
    flags: int
    version: int


def _packet_header(body: Buffer) -> tuple[int, int, int]:
    """(version, opcode, flags). Raises FrameError."""
    if len(body) < _HEADER.size:
        raise FrameError(f"a body of {len(body)} bytes has no packet header")
    version, opcode, flags = _HEADER.unpack_from(body)
    if version == 0:
        return 0, opcode << 16 | flags, 0
    return version, opcode, flags


def _packet_int(version: int, opcode: int, flags: int) -> int:
    return opcode if version == 0 else version << 24 | opcode << 16 | flags


def peek_request(body: Buffer) -> Header | BadVersion:
    """Opcode, ledger, flags and version, without decoding the rest.

    Raises FrameError for every body that decode_request() would refuse (except AUTH, whose message is not decoded): a
    body that has passed here may be handed to another process.
    """
    version, opcode, flags = _packet_header(body)
    if version > CURRENT_VERSION:
        bad = decode_request(body)
        assert isinstance(bad, BadVersion)
        return bad
    if opcode == OP_AUTH:
        return Header(opcode, -1, flags, version)
    at = _ADD_ENTRY_AT if opcode == OP_ADD else _HEADER.size
    least = _LEAST_BYTES.get(opcode)
    if least is None:
        raise FrameError(f"opcode {opcode} is not served")
    if opcode != OP_ADD and flags & FLAG_DO_FENCING and version == CURRENT_VERSION:
        least += MASTER_KEY_BYTES
    if len(body) < least:
        raise FrameError(f"opcode {opcode} with {len(body)} bytes, which takes {least} at least")
    return Header(opcode, _IDS.unpack_from(body, at)[0], flags, version)


# ---- requests and their bytes -------------------------------------------------------------------


def decode_request(body: Buffer) -> Request | BadVersion | BadAdd:
    """The request in a body; an entry in it stays in place (a memoryview). Raises FrameError."""
    version, opcode, flags = _packet_header(body)
    view = memoryview(body)
    request: Request | BadAdd
    if opcode == OP_ADD:
        request = _decode_add(view, version, flags)
    elif opcode == OP_READ:
        request = _decode_read(view, version, flags)
    elif opcode == OP_BATCH_READ:
        request = _decode_batch(view, version, flags)
    elif opcode == OP_AUTH:
        request = AuthRequest(version, flags, _decode_auth(view))
    else:
        raise FrameError(f"opcode {opcode} is not served")
    if version <= CURRENT_VERSION:
        return request
    if isinstance(request, AuthRequest):
        raise FrameError(f"authentication with version {version}, which has no response")
    request_id = request.request_id if isinstance(request, BatchReadRequest) else 0
    return BadVersion(version, opcode, request.ledger_id, request.entry_id, request_id)


def _decode_add(view: memoryview, version: int, flags: int) -> AddRequest | BadAdd:
    entry = view[_ADD_ENTRY_AT:]
    if len(entry) < _IDS.size:
        raise FrameError(f"an ADD of {len(view)} bytes carries no entry")
    if len(entry) < _ENTRY_BYTES_MIN:
        return BadAdd(version, *_IDS.unpack_from(entry))
    return AddRequest(version, flags, bytes(view[_HEADER.size : _ADD_ENTRY_AT]), entry)


def _decode_read(view: memoryview, version: int, flags: int) -> ReadRequest:
    end = _HEADER.size + _IDS.size
    if len(view) < end:
        raise FrameError(f"a READ of {len(view)} bytes has no ids")
    ledger, entry = _IDS.unpack_from(view, _HEADER.size)
    return ReadRequest(version, flags, ledger, entry, _fence_key(view, end, version, flags))


def _decode_batch(view: memoryview, version: int, flags: int) -> BatchReadRequest:
    end = _HEADER.size + _BATCH.size
    if len(view) < end:
        raise FrameError(f"a BATCH_READ of {len(view)} bytes is not whole")
    key = _fence_key(view, end, version, flags)
    ledger, entry, request_id, count, size = _BATCH.unpack_from(view, _HEADER.size)
    return BatchReadRequest(version, flags, ledger, entry, request_id, count, size, key)


def _fence_key(view: memoryview, at: int, version: int, flags: int) -> bytes | None:
    if not flags & FLAG_DO_FENCING or version < CURRENT_VERSION:
        return None
    if len(view) < at + MASTER_KEY_BYTES:
        raise FrameError("a fencing request without a master key")
    return bytes(view[at : at + MASTER_KEY_BYTES])


def _decode_auth(view: memoryview) -> AuthMessage:
    try:
        return auth.decode(view[_HEADER.size :])
    except EncodingError as error:
        raise FrameError(f"AUTH: {error}") from None


def encode_request(request: Request) -> bytes:
    """The whole frame."""
    if isinstance(request, AddRequest):
        return _frame(request.version, OP_ADD, request.flags, request.master_key, request.entry)
    if isinstance(request, ReadRequest):
        ids = _IDS.pack(request.ledger_id, request.entry_id)
        return _frame(request.version, OP_READ, request.flags, ids, request.master_key or b"")
    if isinstance(request, BatchReadRequest):
        fields = _BATCH.pack(
            request.ledger_id,
            request.entry_id,
            request.request_id,
            request.max_count,
            request.max_size,
        )
        return _frame(
            request.version, OP_BATCH_READ, request.flags, fields, request.master_key or b""
        )
    return _frame(request.version, OP_AUTH, request.flags, auth.encode(request.message))


def _frame(version: int, opcode: int, flags: int, *parts: Buffer) -> bytes:
    size = _HEADER.size + sum(map(len, parts))
    return b"".join((_HEAD.pack(size, _packet_int(version, opcode, flags)), *parts))


# ---- responses and their bytes ------------------------------------------------------------------


def encode_response(response: Response) -> bytes:
    """The whole frame."""
    if isinstance(response, AuthResponse):
        return _frame(response.version, OP_AUTH, 0, auth.encode(response.message))
    if isinstance(response, AddResponse):
        return _response_head(response, OP_ADD, 0)
    if isinstance(response, ReadResponse):
        entry = response.entry if response.code is Code.EOK and response.entry is not None else b""
        head = _response_head(response, OP_READ, len(entry))
        return b"".join((head, entry))
    parts: list[Buffer] = [_REQUEST_ID.pack(response.request_id)]
    if response.code is Code.EOK:
        for entry in response.entries:
            parts += (_INT.pack(len(entry)), entry)
    head = _response_head(response, OP_BATCH_READ, sum(map(len, parts)))
    return b"".join((head, *parts))


def _response_head(
    response: AddResponse | ReadResponse | BatchReadResponse, opcode: int, body_bytes: int
) -> bytes:
    return _RESPONSE.pack(
        _RESPONSE.size - PREFIX_BYTES + body_bytes,
        _packet_int(response.version, opcode, 0),
        response.code.v2,
        response.ledger_id,
        response.entry_id,
    )


def decode_response(body: Buffer) -> Response:
    """The response in a body; entries in it stay in place (memoryviews). Raises FrameError."""
    version, opcode, _ = _packet_header(body)
    view = memoryview(body)
    if opcode == OP_AUTH:
        return AuthResponse(version, _decode_auth(view))
    if opcode not in (OP_ADD, OP_READ, OP_BATCH_READ):
        raise FrameError(f"a response with opcode {opcode}")
    at = _HEADER.size + _RESPONSE_BODY.size
    if len(view) < at:
        raise FrameError(f"a response of {len(view)} bytes is not whole")
    number, ledger, entry = _RESPONSE_BODY.unpack_from(view, _HEADER.size)
    code = code_from_v2(number)
    if code is None:
        raise FrameError(f"a response with the unknown code {number}")
    if opcode == OP_ADD:
        return AddResponse(version, code, ledger, entry)
    if opcode == OP_READ:
        return ReadResponse(version, code, ledger, entry, view[at:] if code is Code.EOK else None)
    if len(view) < at + _REQUEST_ID.size:
        raise FrameError("a BATCH_READ response without a request id")
    (request_id,) = _REQUEST_ID.unpack_from(view, at)
    entries = _decode_entries(view[at + _REQUEST_ID.size :]) if code is Code.EOK else ()
    return BatchReadResponse(version, code, ledger, entry, request_id, entries)


def _decode_entries(view: memoryview) -> tuple[memoryview, ...]:
    entries = []
    at = 0
    while at < len(view):
        if len(view) - at < _INT.size:
            raise FrameError("a batch of entries ends within a size")
        (size,) = _INT.unpack_from(view, at)
        at += _INT.size
        if not 0 <= size <= len(view) - at:
            raise FrameError(
                f"a batch has an entry of {size} bytes where {len(view) - at} are left"
            )
        entries.append(view[at : at + size])
        at += size
    return tuple(entries)


# ---- refusals -----------------------------------------------------------------------------------


def refusal(request: Request | BadVersion | BadAdd, code: Code) -> Response | None:
    """The response that refuses a request with this code; None for AUTH, which cannot be refused."""
    if isinstance(request, AuthRequest):
        return None
    if isinstance(request, BadAdd | AddRequest):
        return AddResponse(request.version, code, request.ledger_id, request.entry_id)
    ids = (request.ledger_id, request.entry_id)
    if isinstance(request, ReadRequest):
        return ReadResponse(request.version, code, *ids)
    if isinstance(request, BatchReadRequest) or request.opcode == OP_BATCH_READ:
        return BatchReadResponse(request.version, code, *ids, request.request_id)
    if request.opcode == OP_READ:
        return ReadResponse(request.version, code, *ids)
    return AddResponse(request.version, code, *ids)


def bad_version_response(request: BadVersion) -> Response:
    """The EBADVERSION response; it repeats the version of the request."""
    response = refusal(request, Code.EBADVERSION)
    assert response is not None
    return response


def refuse(body: Buffer, code: Code) -> bytes:
    """The frame that refuses the request in a body; empty for AUTH. Raises FrameError."""
    response = refusal(decode_request(body), code)
    return b"" if response is None else encode_response(response)
