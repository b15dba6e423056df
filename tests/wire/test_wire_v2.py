"""Frames and messages of protocol version 2 beyond the golden vectors."""

from __future__ import annotations

import pytest

from bkbox.errors import FrameError
from bkbox.wire import v2
from bkbox.wire.auth import AuthMessage
from bkbox.wire.codes import Code
from bkbox.wire.digest import DigestManager, master_key
from bkbox.wire.frames import PREFIX_BYTES, bodies, complete_frames, frame
from bkbox.wire.metadata.ledger import DigestType

KEY = master_key(b"pw")
ENTRY = DigestManager(3, DigestType.CRC32C, b"pw").package(0, -1, 5, b"hello")


def body(data: bytes) -> bytes:
    return data[PREFIX_BYTES:]


# ---- framing ----------------------------------------------------------------------------------


def test_frames_are_found_whole() -> None:
    stream = frame(b"ab") + frame(b"cde") + frame(b"x" * 9)[:-1]
    assert complete_frames(stream) == 13
    assert [bytes(b) for b in bodies(stream)] == [b"ab", b"cde"]
    assert complete_frames(stream[:3]) == 0
    assert complete_frames(b"") == 0
    assert [bytes(b) for b in bodies(memoryview(bytearray(stream + b"x")))][2:] == [b"x" * 9]


def test_the_limit_counts_the_prefix() -> None:
    assert complete_frames(frame(bytes(96)), limit=100) == 100
    with pytest.raises(FrameError, match="97 bytes"):
        complete_frames(frame(bytes(97)), limit=100)


@pytest.mark.parametrize("prefix", ["00000000", "ffffffff", "80000000", "004ffffd"])
def test_frames_that_cannot_be(prefix: str) -> None:
    with pytest.raises(FrameError):
        complete_frames(bytes.fromhex(prefix))
    with pytest.raises(FrameError):
        list(bodies(frame(b"a") + bytes.fromhex(prefix)))


def test_the_largest_frame_is_taken() -> None:
    assert complete_frames(bytes.fromhex("004ffffc")) == 0


# ---- requests ---------------------------------------------------------------------------------


def test_add_as_documented() -> None:
    request = v2.AddRequest(2, 0, KEY, ENTRY)
    assert v2.encode_request(request).hex() == (
        "00000041020100002aa226ba095b6969a64871977693b14671710d76"
        "00000000000000030000000000000000ffffffffffffffff0000000000000005c8d3755f68656c6c6f"
    )
    assert (request.ledger_id, request.entry_id, request.lac) == (3, 0, -1)
    answer = v2.AddResponse(2, Code.EOK, 3, 0)
    assert (
        v2.encode_response(answer).hex()
        == "00000018020100000000000000000000000000030000000000000000"
    )


@pytest.mark.parametrize(("version", "header"), [(0, "00000001"), (1, "01010000")])
def test_old_versions(version: int, header: str) -> None:
    encoded = v2.encode_request(v2.AddRequest(version, 0, KEY, ENTRY))
    assert body(encoded)[:4].hex() == header
    decoded = v2.decode_request(body(encoded))
    assert decoded == v2.AddRequest(version, 0, KEY, ENTRY)
    assert v2.peek_request(body(encoded)) == v2.Header(v2.OP_ADD, 3, 0, version)
    answer = v2.encode_response(v2.AddResponse(version, Code.EOK, 3, 0))
    assert body(answer)[:4].hex() == header
    assert v2.decode_response(body(answer)) == v2.AddResponse(version, Code.EOK, 3, 0)


def test_version_0_has_no_flags() -> None:
    with pytest.raises(FrameError):
        v2.decode_request(bytes.fromhex("00020001") + bytes(36))


def test_version_1_fences_without_a_key() -> None:
    request = v2.decode_request(bytes.fromhex("01020001") + bytes(36))
    assert isinstance(request, v2.ReadRequest)
    assert (request.fencing, request.master_key) == (True, None)


@pytest.mark.parametrize("opcode", [v2.OP_READ, v2.OP_BATCH_READ])
def test_version_2_fences_with_a_key_only(opcode: int) -> None:
    whole = bytes((2, opcode, 0, 1)) + bytes(36 if opcode == v2.OP_READ else 56)
    request = v2.decode_request(whole)
    assert isinstance(request, v2.ReadRequest | v2.BatchReadRequest)
    assert request.master_key == bytes(20)
    for decode in (v2.decode_request, v2.peek_request):
        with pytest.raises(FrameError):
            decode(whole[:-1])


@pytest.mark.parametrize(
    ("fixed", "expected"),
    [
        (v2.AddRequest(3, 0, KEY, ENTRY), v2.AddResponse(3, Code.EBADVERSION, 3, 0)),
        (v2.ReadRequest(3, 0, 9, 4, None), v2.ReadResponse(3, Code.EBADVERSION, 9, 4)),
        (
            v2.BatchReadRequest(7, 0, 9, 4, 77, 1, 1, None),
            v2.BatchReadResponse(7, Code.EBADVERSION, 9, 4, 77),
        ),
    ],
)
def test_versions_from_the_future_are_answered(fixed: v2.Request, expected: v2.Response) -> None:
    encoded = body(v2.encode_request(fixed))
    bad = v2.decode_request(encoded)
    assert isinstance(bad, v2.BadVersion)
    assert v2.peek_request(encoded) == bad
    assert v2.bad_version_response(bad) == expected


def test_an_entry_without_a_header() -> None:
    start = bytes((2, v2.OP_ADD, 0, 0)) + KEY
    with pytest.raises(FrameError):
        v2.decode_request(start + ENTRY[:15])
    for size in (16, 23):
        bad = v2.decode_request(start + ENTRY[:size])
        assert bad == v2.BadAdd(2, 3, 0)
        assert v2.refuse(start + ENTRY[:size], Code.EBADREQ) == v2.encode_response(
            v2.AddResponse(2, Code.EBADREQ, 3, 0)
        )
    assert isinstance(v2.decode_request(start + ENTRY[:24]), v2.AddRequest)


@pytest.mark.parametrize("opcode", [0, 4, 5, 6, 8, 255])
def test_opcodes_that_are_not_served(opcode: int) -> None:
    for decode in (v2.decode_request, v2.peek_request, v2.decode_response):
        with pytest.raises(FrameError):
            decode(bytes((2, opcode, 0, 0)) + bytes(60))


@pytest.mark.parametrize(
    "short",
    ["", "0202", "02020000", "0202000000", "02010000", "02070000" + "00" * 35, "02030000ff"],
)
def test_bodies_that_are_too_short(short: str) -> None:
    with pytest.raises(FrameError):
        v2.decode_request(bytes.fromhex(short))


# ---- responses --------------------------------------------------------------------------------


@pytest.mark.parametrize("code", list(Code))
def test_every_code_survives(code: Code) -> None:
    for response in (
        v2.AddResponse(2, code, 1, 2),
        v2.ReadResponse(2, code, 1, -1, b"entry" if code is Code.EOK else None),
        v2.BatchReadResponse(2, code, 1, 2, 3, (b"e1", b"") if code is Code.EOK else ()),
    ):
        assert v2.decode_response(body(v2.encode_response(response))) == response


def test_an_error_carries_no_entry() -> None:
    assert len(v2.encode_response(v2.ReadResponse(2, Code.EIO, 1, 2, b"entry"))) == 28
    assert len(v2.encode_response(v2.BatchReadResponse(2, Code.EIO, 1, 2, 3, (b"e",)))) == 36


def test_unknown_code_and_broken_batches() -> None:
    head = v2.encode_response(v2.BatchReadResponse(2, Code.EOK, 1, 2, 3))[4:]
    for tail in ("00", "00000005aaaaaaaa", "ffffffff"):
        with pytest.raises(FrameError):
            v2.decode_response(head + bytes.fromhex(tail))
    with pytest.raises(FrameError):
        v2.decode_response(head[:-1])
    with pytest.raises(FrameError, match="unknown code 9"):
        v2.decode_response(bytes.fromhex("0201000000000009") + bytes(16))


def test_refusals_of_every_kind_of_request() -> None:
    requests = (
        v2.AddRequest(2, 0, KEY, ENTRY),
        v2.ReadRequest(1, 0, 5, -1, None),
        v2.AuthRequest(2, 0, AuthMessage("sasl", b"")),
        v2.BatchReadRequest(2, 0, 5, 6, 7, 8, 9, None),
    )
    bodies_of = bodies(b"".join(map(v2.encode_request, requests)))
    answers = b"".join(v2.refuse(body, Code.EIO) for body in bodies_of)
    assert [v2.decode_response(answer) for answer in bodies(answers)] == [
        v2.AddResponse(2, Code.EIO, 3, 0),
        v2.ReadResponse(1, Code.EIO, 5, -1),
        v2.BatchReadResponse(2, Code.EIO, 5, 6, 7),
    ]
