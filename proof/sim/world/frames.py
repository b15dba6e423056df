"""Parses requests and responses of both versions, as far as the simulated front-end, client and checks need it."""

from __future__ import annotations

from bkbox.errors import EncodingError
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code, code_from_v2, code_from_v3
from bkbox.wire.v3_fast_path import ADD as PLAIN_ADD
from bkbox.wire.v3_fast_path import FastRequestV3, FastResponseV3
from proof.sim.world.connection import Connection

ADD, READ, FORCE, OTHER = range(4)

_ENTRY_AT = 4 + 4 + 4 + 8 + 8
"""Offset of the entry in a version 2 response to a read: length, header, code, ledger, entry id."""

_fast_request = FastRequestV3()
_fast_response = FastResponseV3()


class FrameRequest:
    """A parsed request. ``is_fast_path``: it takes the front-end's fast path if the ledger is known;
    ``forced``: the entries that a force is about."""

    __slots__ = (
        "body",
        "connection",
        "deferred",
        "entry",
        "fences",
        "forced",
        "is_fast_path",
        "kind",
        "ledger",
        "number",
        "recovery",
    )

    def __init__(self, connection: Connection, number: int, body: memoryview) -> None:
        self.connection = connection
        self.number = number
        self.body = body
        self.kind = OTHER
        self.recovery = self.deferred = self.fences = False
        self.ledger = self.entry = -1
        self.is_fast_path = False
        self.forced: tuple[int, ...] = ()
        if body[0] < v3.FIRST_BYTE_MIN:
            flags = int.from_bytes(body[2:4], "big")
            self.is_fast_path = flags == 0 and body[0] == v2.CURRENT_VERSION
            if body[1] == v2.OP_ADD:
                self.kind = ADD
                self.ledger = int.from_bytes(body[24:32], "big", signed=True)
                self.entry = int.from_bytes(body[32:40], "big", signed=True)
                self.recovery = bool(flags & v2.FLAG_RECOVERY_ADD)
            elif body[1] == v2.OP_READ:
                self.kind = READ
                self.ledger = int.from_bytes(body[4:12], "big", signed=True)
                self.entry = int.from_bytes(body[12:20], "big", signed=True)
                self.fences = bool(flags & v2.FLAG_DO_FENCING)
            self.is_fast_path = self.is_fast_path and self.kind != OTHER and self.entry >= 0
            return
        operation = _fast_request.parse(body, 0, len(body))
        if operation:
            self.kind = ADD if operation == PLAIN_ADD else READ
            self.ledger, self.entry = _fast_request.ledger, _fast_request.entry
            self.is_fast_path = True
            return
        request = v3.decode_request(body)
        if isinstance(request, v3.AddRequest):
            self.kind = ADD
            self.ledger, self.entry = request.ledger_id, request.entry_id
            self.recovery, self.deferred = request.recovery, request.deferred_sync
        elif isinstance(request, v3.ReadRequest) and not request.long_poll:
            self.kind = READ
            self.ledger, self.entry = request.ledger_id, request.entry_id
            self.fences = request.fencing
        elif isinstance(request, v3.ForceRequest):
            self.kind = FORCE
            self.ledger = request.ledger_id


def code_of(body: memoryview) -> Code:
    """The code in a response."""
    if body[0] < v3.FIRST_BYTE_MIN:
        return code_from_v2(int.from_bytes(body[4:8], "big", signed=True)) or Code.EIO
    if _fast_response.parse(body, 0, len(body)):
        return code_from_v3(_fast_response.code) or Code.EIO
    try:
        response = v3.decode_response(body)
    except EncodingError:
        return Code.EIO
    found: Code = response.code  # type: ignore[union-attr]
    return found


def garbled(frame: bytes) -> bytes:
    """A version 2 response to a read with a wrong bit in the last byte of its entry; any other frame unchanged."""
    if len(frame) <= _ENTRY_AT or frame[4] >= v3.FIRST_BYTE_MIN:
        return frame
    return b"%b%c" % (frame[:-1], frame[-1] ^ 1)
