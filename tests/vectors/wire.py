"""Checks of vectors about frames of version 2, digests and availability lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bkbox.errors import DigestError, EncodingError, FrameError
from bkbox.wire import availability, v2
from bkbox.wire.auth import AuthMessage
from bkbox.wire.codes import code_from_v2
from bkbox.wire.digest import DigestManager, hmac_key, master_key
from bkbox.wire.frames import PREFIX_BYTES, complete_frames
from tests.vectors.common import Case, differ, differ_fields, digest_type, must_fail

_OPCODES = {
    "ADDENTRY": v2.OP_ADD,
    "READENTRY": v2.OP_READ,
    "AUTH": v2.OP_AUTH,
    "BATCH_READ_ENTRY": v2.OP_BATCH_READ,
}


# ---- frames of version 2 ----------------------------------------------------------------------


def check_frame(case: Case) -> Iterator[str]:
    """Frame and fields agree, both ways."""
    frame = bytes.fromhex(case["frame"])
    yield from differ("length of the frame", len(frame), complete_frames(frame))
    request = {"request": True, "response": False}[case["direction"]]
    body = frame[PREFIX_BYTES:]
    decode = v2.decode_request if request else v2.decode_response
    if case.get("kind") == "reject":
        yield from must_fail("frame", FrameError, lambda: decode(body))
        return
    fields = case["fields"]
    yield from differ("op", _OPCODES.get(case["op"]), fields["opcode"])
    if request:
        yield from _check_request(case, body, frame)
    else:
        found = v2.decode_response(body)
        yield from differ_fields(fields, _response_fields(found))
        if not case.get("decode_only"):
            yield from differ("encoded fields", frame, v2.encode_response(_response_of(fields)))
            yield from differ("encoded again", frame, v2.encode_response(found))


def _check_request(case: Case, body: bytes, frame: bytes) -> Iterator[str]:
    fields = case["fields"]
    found = v2.decode_request(body)
    if isinstance(found, v2.BadAdd):
        yield f"the request can only be refused: {found}"
        return
    if isinstance(found, v2.BadVersion):
        yield from differ("version", fields["version"], found.version)
        yield from differ("opcode", fields["opcode"], found.opcode)
        yield from differ("ledgerId", fields["ledgerId"], found.ledger_id)
        yield from differ("entryId", fields["entryId"], found.entry_id)
        yield from differ("requestId", fields.get("requestId", 0), found.request_id)
        yield from differ("encoded fields", frame, v2.encode_request(_request_of(fields)))
        return
    header = v2.peek_request(body)
    expected = (fields["opcode"], fields.get("ledgerId", -1), fields["flags"], fields["version"])
    yield from differ("header", v2.Header(*expected), header)
    yield from differ_fields(fields, _request_fields(found, fields))
    if not case.get("decode_only"):
        yield from differ("encoded fields", frame, v2.encode_request(_request_of(fields)))
        yield from differ("encoded again", frame, v2.encode_request(found))


def _request_fields(request: v2.Request, fields: Case) -> dict[str, Any]:
    found: dict[str, Any] = {
        "version": request.version,
        "opcode": _opcode_of(request),
        "flags": request.flags,
    }
    if isinstance(request, v2.AuthRequest):
        return found | _auth_fields(request.message)
    found |= {"ledgerId": request.ledger_id, "entryId": request.entry_id}
    if isinstance(request, v2.AddRequest):
        password = bytes.fromhex(fields["password"])
        digests = DigestManager(request.ledger_id, digest_type(fields["digestType"]), password)
        entry = digests.verify(request.entry, request.entry_id)
        if request.master_key != master_key(password):
            raise DigestError("the master key is not that of the password")
        return found | {
            "masterKey": request.master_key.hex(),
            "lac": entry.lac,
            "length": entry.length,
            "digestType": fields["digestType"],
            "password": fields["password"],
            "payload": entry.payload.hex(),
        }
    key = request.master_key
    found |= {"masterKey": None if key is None else key.hex()}
    if isinstance(request, v2.BatchReadRequest):
        found |= {
            "requestId": request.request_id,
            "maxCount": request.max_count,
            "maxSize": request.max_size,
        }
    return found


def _request_of(fields: Case) -> v2.Request:
    opcode, version, flags = fields["opcode"], fields["version"], fields["flags"]
    if opcode == v2.OP_AUTH:
        return v2.AuthRequest(version, flags, _auth_of(fields))
    ledger, entry = fields["ledgerId"], fields["entryId"]
    key = None if fields["masterKey"] is None else bytes.fromhex(fields["masterKey"])
    if opcode == v2.OP_READ:
        return v2.ReadRequest(version, flags, ledger, entry, key)
    if opcode == v2.OP_BATCH_READ:
        limits = (fields["requestId"], fields["maxCount"], fields["maxSize"])
        return v2.BatchReadRequest(version, flags, ledger, entry, *limits, key)
    password = bytes.fromhex(fields["password"])
    digests = DigestManager(ledger, digest_type(fields["digestType"]), password)
    payload = bytes.fromhex(fields["payload"])
    packaged = digests.package(entry, fields["lac"], fields["length"], payload)
    return v2.AddRequest(version, flags, key or b"", packaged)


def _response_fields(response: v2.Response) -> dict[str, Any]:
    found: dict[str, Any] = {
        "version": response.version,
        "opcode": _opcode_of(response),
        "flags": 0,
    }
    if isinstance(response, v2.AuthResponse):
        return found | _auth_fields(response.message)
    found |= {
        "errorCode": response.code.v2,
        "ledgerId": response.ledger_id,
        "entryId": response.entry_id,
    }
    if isinstance(response, v2.ReadResponse):
        return found | {"body": bytes(response.entry or b"").hex()}
    if isinstance(response, v2.BatchReadResponse):
        entries = [bytes(entry).hex() for entry in response.entries]
        return found | {"requestId": response.request_id, "entries": entries}
    return found


def _response_of(fields: Case) -> v2.Response:
    opcode, version = fields["opcode"], fields["version"]
    if opcode == v2.OP_AUTH:
        return v2.AuthResponse(version, _auth_of(fields))
    code = code_from_v2(fields["errorCode"])
    if code is None:
        raise FrameError(f"the code {fields['errorCode']} is unknown")
    ids = (fields["ledgerId"], fields["entryId"])
    if opcode == v2.OP_READ:
        return v2.ReadResponse(version, code, *ids, bytes.fromhex(fields["body"]))
    if opcode == v2.OP_BATCH_READ:
        entries = tuple(map(bytes.fromhex, fields["entries"]))
        return v2.BatchReadResponse(version, code, *ids, fields["requestId"], entries)
    return v2.AddResponse(version, code, *ids)


def _opcode_of(message: v2.Request | v2.Response) -> int:
    if isinstance(message, v2.AddRequest | v2.AddResponse):
        return v2.OP_ADD
    if isinstance(message, v2.ReadRequest | v2.ReadResponse):
        return v2.OP_READ
    if isinstance(message, v2.BatchReadRequest | v2.BatchReadResponse):
        return v2.OP_BATCH_READ
    return v2.OP_AUTH


def _auth_fields(message: AuthMessage) -> dict[str, Any]:
    return {"authPluginName": message.plugin, "payload": message.payload.hex()}


def _auth_of(fields: Case) -> AuthMessage:
    return AuthMessage(fields["authPluginName"], bytes.fromhex(fields["payload"]))


# ---- digests ----------------------------------------------------------------------------------


def check_digest(case: Case) -> Iterator[str]:
    """Keys, entries and LAC packets; entries that have to be refused."""
    password = bytes.fromhex(case["password"])
    if case["kind"] == "master_key":
        yield from differ("master_key", case["master_key"], master_key(password).hex())
        yield from differ("hmac_key", case["hmac_key"], hmac_key(password).hex())
        return
    digests = DigestManager(case["ledgerId"], digest_type(case["digest_type"]), password)
    if case["kind"] == "entry":
        yield from _check_entry(case, digests)
    elif case["kind"] == "lac":
        packet = bytes.fromhex(case["packet"])
        yield from differ("packet", packet, digests.package_lac(case["lac"]))
        yield from differ("lac", case["lac"], digests.verify_lac(packet))
    elif case["kind"] == "reject" and "packet" in case:
        bad = bytes.fromhex(case["packet"])
        yield from must_fail("packet", DigestError, lambda: digests.verify_lac(bad))
    elif case["kind"] == "reject":
        entry, asked = bytes.fromhex(case["entry"]), case["entryId"]
        yield from must_fail("entry", DigestError, lambda: digests.verify(entry, asked))
    else:
        yield f"the kind {case['kind']!r} is unknown"


def _check_entry(case: Case, digests: DigestManager) -> Iterator[str]:
    entry = bytes.fromhex(case["entry"])
    payload = bytes.fromhex(case["payload"])
    made = digests.package(case["entryId"], case["lac"], case["length"], payload)
    yield from differ("entry", entry, made)
    yield from differ("digest_size", case["digest_size"], digests.digest_size)
    yield from differ("digest", case["digest"], made[32 : 32 + digests.digest_size].hex())
    found = digests.verify(entry, case["entryId"])
    yield from differ("ledgerId", case["ledgerId"], found.ledger_id)
    yield from differ("entryId", case["entryId"], found.entry_id)
    yield from differ("lac", case["lac"], found.lac)
    yield from differ("length", case["length"], found.length)
    yield from differ("payload", payload, found.payload)


# ---- availability -----------------------------------------------------------------------------


def check_availability(case: Case) -> Iterator[str]:
    """Ids and encoded groups agree; lists that have to be refused."""
    encoded = bytes.fromhex(case["encoded"])
    if case["kind"] not in ("encode", "decode", "reject"):
        yield f"the kind {case['kind']!r} is unknown"
    if case["kind"] == "reject":
        yield from must_fail("encoded", EncodingError, lambda: availability.decode(encoded))
        return
    entries = case["entries"]
    found = availability.decode(encoded)
    yield from differ("entries", sorted(set(entries)), sorted(found))
    yield from differ("total", case["total"], found.total)
    around = {near for entry in entries for near in (entry - 1, entry, entry + 1)}
    yield from differ("members", set(entries), {entry for entry in around if entry in found})
    if case["kind"] == "encode":
        made = availability.availability_of(entries)
        yield from differ("groups", case["groups"], len(made.groups))
        yield from differ("encoded", encoded, availability.encode(made))
