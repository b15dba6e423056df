"""Checks of vectors about messages of protocol version 3.

A case holds a frame and its message: fields by their protobuf names, enums by name, bytes as hex,
optional fields only where they are set. Numbers of unsigned fields may stand there signed, as Java
shows them. The tables (v3_format.py) and the typed values (v3.py) are checked alike; what typed
values do not hold is left out of that comparison: the context for logs, bits without a meaning,
and optional numbers that say no more than their absence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bkbox.errors import EncodingError, FrameError
from bkbox.wire import protobuf, v3
from bkbox.wire.codes import Code
from bkbox.wire.frames import PREFIX_BYTES, complete_frames, frame
from bkbox.wire.protobuf import Field, Kind, Label, Message, Values
from bkbox.wire.v3_format import (
    DEFERRED_SYNC,
    FREE_DISK_SPACE,
    REQUEST,
    RESPONSE,
    TOTAL_DISK_CAPACITY,
    Operation,
    ProtocolVersion,
)
from tests.vectors.common import Case, differ, must_fail

_BITS = {Kind.UINT32: 32, Kind.UINT64: 64}


def check_message(case: Case) -> Iterator[str]:
    """Frame and message agree, both ways; or the frame has to be refused."""
    whole = bytes.fromhex(case["frame"])
    body = whole[PREFIX_BYTES:]
    yield from differ("length of the frame", len(whole), complete_frames(whole))
    request = {"request": True, "response": False}[case["direction"]]
    if case.get("kind") == "reject":
        decode = v3.decode_request if request else v3.decode_response
        yield from must_fail("frame", (EncodingError, FrameError), lambda: decode(body))
        return
    table = REQUEST if request else RESPONSE
    expected = _read(table, case["message"])
    found = protobuf.decode(table, body)
    yield from _differences(table, expected, found, "")
    if "op" in case:
        yield from differ("op", Operation[case["op"]], found["header"]["operation"])
    if not case.get("decode_only"):
        yield from differ("encoded", whole, frame(protobuf.encode(table, expected)))
    typed = (
        v3.encode_request(v3.decode_request(body))
        if request
        else v3.encode_response(v3.decode_response(body))
    )
    held = _held_request(expected) if request else _held_response(expected)
    yield from differ("encoded from the value", frame(protobuf.encode(table, held)), typed)


# ---- from and to the form of a case -------------------------------------------------------------


def _read(table: Message, shown: Case) -> Values:
    """The values of a message that is shown in a case. Raises EncodingError."""
    for name in shown:
        if name not in table.by_name:
            raise EncodingError(f"{table.name} has no field {name}")
    return {
        name: [_read_one(table.by_name[name], each) for each in value]
        if table.by_name[name].label is Label.REPEATED
        else _read_one(table.by_name[name], value)
        for name, value in shown.items()
    }


def _read_one(field: Field, shown: Any) -> Any:
    if field.message is not None:
        return _read(field.message, shown)
    if field.enum is not None:
        return field.enum[shown]
    if field.kind in (Kind.BYTES, Kind.VIEW):
        return bytes.fromhex(shown)
    if field.kind in _BITS:
        return shown & ((1 << _BITS[field.kind]) - 1)
    return shown


def _differences(table: Message, expected: Values, found: Values, path: str) -> Iterator[str]:
    for field in table.fields:
        name = path + field.name
        ours, theirs = expected.get(field.name), found.get(field.name)
        if field.label is Label.REPEATED:
            yield from differ(name, ours or [], theirs or [])
        elif ours is None or theirs is None:
            if ours is not theirs:
                yield f"field {name} is {'not expected' if ours is None else 'expected'}"
        elif field.message is not None:
            yield from _differences(field.message, ours, theirs, f"{name}.")
        else:
            theirs = bytes(theirs) if isinstance(theirs, memoryview) else theirs
            yield from differ(name, ours, theirs)


# ---- what typed values hold ---------------------------------------------------------------------


def _held_request(values: Values) -> Values:
    header: Values = values["header"]
    operation: Operation = header["operation"]
    held: Values = {"header": {**header, "priority": header.get("priority") or None}}
    if operation not in _PARTS:
        return held
    name = f"{_PARTS[operation]}Request"
    part = values.get(name)
    if operation is Operation.ADD_ENTRY and part is not None:
        part = _masked(part, "writeFlags", DEFERRED_SYNC)
    elif operation is Operation.GET_BOOKIE_INFO:
        part = _masked(part or {}, "requested", TOTAL_DISK_CAPACITY | FREE_DISK_SPACE)
    elif operation is Operation.START_TLS:
        part = {}
    return {**held, name: part}


def _held_response(values: Values) -> Values:
    header: Values = values["header"]
    operation: Operation = header["operation"]
    name = f"{_PARTS.get(operation, 'no')}Response"
    part = values.get(name)
    status: int = values["status"]
    if part is not None and "status" in part:
        status = part["status"] if status == Code.EOK.v3 else status
        part = {**part, "status": status}
    if operation is Operation.START_TLS and status != Code.EOK.v3:
        part = None
    priority = header.get("priority") or None
    if part is None or operation is Operation.AUTH:
        return {"header": {**header, "priority": priority}, "status": status, name: part}
    answered = {"version": ProtocolVersion.VERSION_THREE, "priority": None}
    return {"header": {**header, **answered}, "status": status, name: part}


_PARTS = {
    Operation.READ_ENTRY: "read",
    Operation.ADD_ENTRY: "add",
    Operation.AUTH: "auth",
    Operation.WRITE_LAC: "writeLac",
    Operation.READ_LAC: "readLac",
    Operation.GET_BOOKIE_INFO: "getBookieInfo",
    Operation.START_TLS: "startTLS",
    Operation.FORCE_LEDGER: "forceLedger",
    Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: "getListOfEntriesOfLedger",
}


def _masked(part: Values, name: str, bits: int) -> Values:
    return {**part, name: part.get(name, 0) & bits or None}
