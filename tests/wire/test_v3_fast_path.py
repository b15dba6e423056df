"""Plain version 3 is what wire.v3 says: request by request, answer by answer, byte by byte."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bkbox.errors import BkboxError
from bkbox.wire import protobuf, v3, v3_fast_path
from bkbox.wire.codes import Code
from bkbox.wire.v3 import Header
from bkbox.wire.v3_fast_path import ADD, NO_LAC, READ, FastRequestV3, FastResponseV3
from bkbox.wire.v3_format import Operation

KEY = bytes(range(100, 120))
REQUEST = FastRequestV3()  # used again and again, as on the hot path
ANSWER = FastResponseV3()
MARGIN = 16
VECTORS = Path(__file__).parents[1] / "wire" / "vectors" / "wire-v3.json"

TXNS = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))
IDS = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
SIGNED = st.one_of(IDS, st.just(-1), st.integers(-(2**63), -1))
CODES = st.sampled_from(list(Code))
BODIES = st.one_of(st.binary(max_size=300), st.integers(0, 20_000).map(bytes))
LACS = st.one_of(st.none(), st.just(-1), IDS)


def entry_body(ledger: int, entry: int, rest: bytes) -> bytes:
    return ledger.to_bytes(8) + entry.to_bytes(8) + bytes(8) + rest


def add_of(txn: int, ledger: int, entry: int, rest: bytes, priority: int = 0) -> v3.AddRequest:
    header = Header(Operation.ADD_ENTRY, txn, priority)
    return v3.AddRequest(header, ledger, entry, KEY, entry_body(ledger, entry, rest))


def parsed(data: bytes | memoryview, start: int, end: int) -> v3.Request | None:
    """The request that a parse has found, as a value; None: not plain."""
    plain = REQUEST
    found = plain.parse(data, start, end)
    if found == 0:
        return None
    key = bytes(data[plain.key_at : plain.key_at + 20]) if plain.key_at else None
    header = Header(Operation.ADD_ENTRY if found == ADD else Operation.READ_ENTRY, plain.txn)
    if found == READ:
        return v3.ReadRequest(header, plain.ledger, plain.entry, key)
    assert found == ADD
    assert key is not None
    body = bytes(data[plain.body_at : plain.body_end])
    return v3.AddRequest(header, plain.ledger, plain.entry, key, body)


def answered(data: bytes | memoryview, start: int, end: int) -> v3.Response | None:
    """The answer that a parse has found, as a value; None: not plain."""
    plain = ANSWER
    found = plain.parse(data, start, end)
    if found == 0:
        return None
    code = next(code for code in Code if code.v3 == plain.code)
    if found == ADD:
        return v3.AddResponse(plain.txn, code, plain.ledger, plain.entry)
    body = bytes(data[plain.body_at : plain.body_end]) if plain.body_at else None
    lac = None if plain.lac == NO_LAC else plain.lac
    return v3.ReadResponse(plain.txn, code, plain.ledger, plain.entry, body, lac)


def generic_request(body: bytes) -> v3.Request | None:
    """What wire.v3 reads, but for the priority; None: nothing."""
    try:
        request = v3.decode_request(body)
    except BkboxError:
        return None
    header = request.header._replace(priority=0)
    if isinstance(request, v3.AddRequest):
        assert not request.recovery
        assert not request.deferred_sync
        return v3.AddRequest(
            header, request.ledger_id, request.entry_id, request.master_key, bytes(request.entry)
        )
    assert isinstance(request, v3.ReadRequest)
    assert not request.fencing
    assert not request.piggyback
    assert request.previous_lac is None
    assert request.timeout_ms is None
    return v3.ReadRequest(header, request.ledger_id, request.entry_id, request.master_key)


def among(frame: bytes) -> bytes:
    """The frame between bytes that go on like a message."""
    return b"\x08" * MARGIN + frame + b"\x08" * MARGIN


def parse_frame(frame: bytes) -> v3.Request | None:
    return parsed(among(frame), MARGIN + 4, MARGIN + len(frame))


def answer_frame(frame: bytes) -> v3.Response | None:
    return answered(among(frame), MARGIN + 4, MARGIN + len(frame))


# ---- requests -----------------------------------------------------------------------------------


@given(TXNS, IDS, IDS, BODIES, st.sampled_from([0, 100, 2**32 - 1]))
def test_adds(txn: int, ledger: int, entry: int, rest: bytes, priority: int) -> None:
    request = add_of(txn, ledger, entry, rest, priority)
    frame = v3.encode_request(request)
    assert parse_frame(frame) == generic_request(frame[4:])
    assert parse_frame(frame) is not None


@given(TXNS, IDS, IDS, st.sampled_from([None, KEY]), st.sampled_from([0, 100]))
def test_reads(txn: int, ledger: int, entry: int, key: bytes | None, priority: int) -> None:
    header = Header(Operation.READ_ENTRY, txn, priority)
    frame = v3.encode_request(v3.ReadRequest(header, ledger, entry, key))
    assert parse_frame(frame) == generic_request(frame[4:])
    assert parse_frame(frame) is not None


HEADER = Header(Operation.ADD_ENTRY, 7)
READ_HEADER = Header(Operation.READ_ENTRY, 7)
BODY = entry_body(9, 5, b"rest")


@pytest.mark.parametrize(
    "request_",
    [
        v3.AddRequest(HEADER, 9, 5, KEY, BODY, recovery=True),
        v3.AddRequest(HEADER, 9, 5, KEY, BODY, deferred_sync=True),
        v3.AddRequest(HEADER, 9, 5, KEY[1:], BODY),
        v3.AddRequest(HEADER, 9, 5, b"", BODY),
        v3.AddRequest(HEADER, 9, 5, KEY, BODY[:23]),
        v3.AddRequest(HEADER, 9, 5, KEY, b""),
        v3.AddRequest(HEADER, 9, 6, KEY, BODY),
        v3.AddRequest(HEADER, 8, 5, KEY, BODY),
        v3.AddRequest(HEADER, 9, -1, KEY, b"\x00" * 7 + b"\x09" + b"\xff" * 8 + bytes(8)),
        v3.AddRequest(HEADER._replace(version=2), 9, 5, KEY, BODY),
        v3.ReadRequest(READ_HEADER, 9, 5, KEY, fencing=True),
        v3.ReadRequest(READ_HEADER, 9, 5, piggyback=True),
        v3.ReadRequest(READ_HEADER, 9, 5, previous_lac=4),
        v3.ReadRequest(READ_HEADER, 9, 5, timeout_ms=4),
        v3.ReadRequest(READ_HEADER, 9, 5, b"another key"),
        v3.ReadRequest(READ_HEADER, 9, -1),
        v3.ReadRequest(READ_HEADER, -9, 5),
        v3.ReadLacRequest(Header(Operation.READ_LAC, 7), 9),
        v3.ForceRequest(Header(Operation.FORCE_LEDGER, 7), 9),
        v3.WriteLacRequest(Header(Operation.WRITE_LAC, 7), 9, 5, KEY, BODY),
    ],
)
def test_what_is_not_plain(request_: v3.Request) -> None:
    frame = v3.encode_request(request_)
    assert v3.decode_request(frame[4:]) == request_
    assert parse_frame(frame) is None


def test_the_smallest_body_is_plain() -> None:
    request = v3.AddRequest(HEADER, 9, 5, KEY, BODY[:24])
    assert parse_frame(v3.encode_request(request)) == request


def test_a_part_that_belongs_to_another_operation() -> None:
    add = v3.encode_request(v3.AddRequest(HEADER, 9, 5, KEY, BODY))
    read = v3.encode_request(v3.ReadRequest(READ_HEADER, 9, 5))
    for frame, operation in ((add, 1), (add, 0), (add, 3), (read, 2), (read, 0), (read, 3)):
        changed = bytearray(frame)
        changed[9] = operation
        assert parse_frame(bytes(changed)) is None


def test_vectors_of_the_java_client() -> None:
    cases = json.loads(VECTORS.read_text())["cases"]
    frames = {case["name"]: bytes.fromhex(case["frame"]) for case in cases if "frame" in case}
    plain = {name for name, frame in frames.items() if parse_frame(frame) is not None}
    assert plain == {"add", "read"}
    for name in plain:
        assert parse_frame(frames[name]) == generic_request(frames[name][4:])
    answers = {name for name, frame in frames.items() if answer_frame(frame) is not None}
    assert answers == {
        "add_response_ok",
        "add_response_efenced",
        "read_response_ok",
        "read_response_fence_ok",
        "read_response_enoentry",
        "read_response_unknown_state",
        "long_poll_response_empty",
    }
    for name in answers:
        assert answer_frame(frames[name]) == v3.decode_response(frames[name][4:])


# ---- anything that looks like a message ---------------------------------------------------------

VALUES = [
    0,
    1,
    5,
    9,
    127,
    128,
    403,
    2**31,
    2**32 - 1,
    2**32,
    2**63 - 1,
    2**63,
    2**64 - 2,
    2**64 - 1,
]
FEW_IDS = [4, 5, 128, 2**63 - 2, 2**63 - 1, 2**63]
STATUSES = [0, 0, 0, 402, 403, 504, 505, 401, 508, 2**64 - 1]
ODD_FIELDS = [
    b"",
    *map(bytes.fromhex, ("3001", "a00601", "c20c00", "0809", "1005", "2801", "2001")),
]


class Maker:
    """Makes messages that are nearly plain: now and then with a field, a number or a size that is not."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def number(self, value: int) -> bytes:
        """A varint, sometimes with more bytes than it needs, or more bits than there are."""
        data = protobuf.encode_varint(value)
        if self.chance(12):
            more = self.random.choice([1, 2, 8, 9, 10, 10 - len(data)])
            data = bytes(byte | 0x80 for byte in data) + b"\x80" * (more - 1)
            data += self.random.choice([b"\x00", b"\x00", b"\x01", b"\x7f"])
        return data

    def field(self, tag: int, values: list[int]) -> bytes:
        if self.chance(40):
            return self.random.choice(ODD_FIELDS)
        return bytes((tag,)) + self.number(self.random.choice(values))

    def sized(self, tag: bytes, content: bytes) -> bytes:
        size = len(content)
        if self.chance(40):
            size = max(size + self.random.choice([-1, 1, 128, -size, 2**63, 2**64 - 1 - size]), 0)
        return (b"" if self.chance(60) else tag) + self.number(size) + content

    def end(self) -> bytes:
        return self.random.choice(ODD_FIELDS) if self.chance(15) else b""

    def header(self, operation: int) -> bytes:
        content = self.field(0x08, [3] * 30 + [2])
        content += self.field(0x10, [operation] * 20 + [0, 1, 2, 3])
        content += self.field(0x18, VALUES)
        if self.chance(3):
            content += self.field(0x20, VALUES)
        return self.sized(b"\x0a", content + self.end())

    def request(self) -> bytes:
        operation = self.random.choice([1, 2, 2, 2])
        ledger, entry = self.random.choices(FEW_IDS, k=2)
        part = self.field(0x08, [ledger]) + self.field(0x10, [entry])
        if operation == 2 or self.chance(2):
            part += self.sized(b"\x1a", KEY)
        if operation == 2 or self.chance(9):
            body = entry_body(ledger ^ self.chance(15), entry ^ self.chance(15), b"rest")
            size = self.random.choice([28, 28, 28, 24, 24, 23, 0])
            part += self.sized(b"\x22", body[:size])
        tag = b"\xa2\x06" if operation == 1 or self.chance(20) else b"\xaa\x06"
        return self.header(operation) + self.sized(tag, part + self.end()) + self.end()

    def answer(self) -> bytes:
        operation = self.random.choice([1, 1, 2])
        status = self.random.choice(STATUSES)
        inner = self.random.choice(STATUSES) if self.chance(15) else status
        part = self.field(0x08, [inner]) + self.field(0x10, VALUES) + self.field(0x18, VALUES)
        if (operation == 1 and self.chance(2)) or self.chance(20):
            part += self.sized(b"\x22", b"entry"[self.random.randrange(6) :])
        if (operation == 1 and self.chance(2)) or self.chance(20):
            part += self.field(0x28, VALUES)
        head = self.header(operation) + self.field(0x10, [status])
        tag = b"\xa2\x06" if operation == 1 or self.chance(20) else b"\xaa\x06"
        return head + self.sized(tag, part + self.end()) + self.end()


@pytest.mark.parametrize("seed", range(2))
def test_what_parse_accepts_is_what_the_generic_codec_reads(seed: int) -> None:
    maker = Maker(seed)
    plain = 0
    for _ in range(10_000):
        body = maker.request()
        found = parse_frame(bytes(4) + body)
        if found is not None:
            plain += 1
            assert found == generic_request(body), body.hex()
    assert plain > 800


@pytest.mark.parametrize("seed", range(2))
def test_what_answers_are_is_what_the_generic_codec_reads(seed: int) -> None:
    maker = Maker(seed)
    plain = 0
    for _ in range(10_000):
        body = maker.answer()
        found = answer_frame(bytes(4) + body)
        if found is not None:
            plain += 1
            assert found == v3.decode_response(body), body.hex()
    assert plain > 800


@given(st.binary(max_size=40))
def test_any_bytes(body: bytes) -> None:
    assert parse_frame(bytes(4) + body) in (None, generic_request(body))


def test_no_part_of_a_message_is_plain() -> None:
    request = v3.encode_request(add_of(7, 9, 5, b"rest"))
    for end in range(4, len(request)):
        assert parsed(request, 4, end) is None
    answer = v3.encode_response(v3.ReadResponse(7, Code.EOK, 9, 5, b"entry", 300))
    for end in range(4, len(answer)):
        assert answered(answer, 4, end) is None


# ---- what is written ----------------------------------------------------------------------------


def room(size: int) -> bytearray:
    return bytearray(b"\xee" * (size + 2 * MARGIN))


def written(where: bytearray, size: int) -> bytes:
    """What lies in the room, around which nothing was written."""
    assert where[:MARGIN] == where[MARGIN + size :] == b"\xee" * MARGIN
    return bytes(where[MARGIN : MARGIN + size])


@given(TXNS, CODES, SIGNED, SIGNED)
@example(0, Code.EOK, 0, 0)
@example(2**64 - 1, Code.EFENCED, -1, -1)
def test_answers_to_adds(txn: int, code: Code, ledger: int, entry: int) -> None:
    expected = v3.encode_response(v3.AddResponse(txn, code, ledger, entry))
    size = v3_fast_path.add_response_size(txn, code.v3, ledger, entry)
    where = room(size)
    assert (
        v3_fast_path.put_add_response(where, MARGIN, txn, code.v3, ledger, entry) == MARGIN + size
    )
    assert written(where, size) == expected
    assert answer_frame(expected) == v3.AddResponse(txn, code, ledger, entry)


@given(TXNS, CODES, SIGNED, SIGNED, BODIES, LACS)
@example(0, Code.EOK, 0, 0, b"", -1)
@example(2**64 - 1, Code.EIO, -1, -1, b"", None)
def test_answers_to_reads(
    txn: int, code: Code, ledger: int, entry: int, body: bytes, max_lac: int | None
) -> None:
    answer = v3.ReadResponse(txn, code, ledger, entry, body, max_lac)
    expected = v3.encode_response(answer)
    lac = NO_LAC if max_lac is None else max_lac
    head = v3_fast_path.read_head_size(txn, code.v3, ledger, entry, len(body), lac)
    tail = v3_fast_path.read_tail_size(lac)
    size = head + len(body) + tail
    where = room(size)
    at = v3_fast_path.put_read_head(where, MARGIN, txn, code.v3, ledger, entry, len(body), lac)
    assert at == MARGIN + head
    assert head >= 25
    where[at : at + len(body)] = body
    assert v3_fast_path.put_read_tail(where, at + len(body), lac) == MARGIN + size
    assert written(where, size) == expected
    assert answer_frame(expected) == answer


@given(TXNS, CODES, SIGNED, SIGNED, LACS)
def test_answers_without_an_entry(
    txn: int, code: Code, ledger: int, entry: int, max_lac: int | None
) -> None:
    answer = v3.ReadResponse(txn, code, ledger, entry, None, max_lac)
    assert answer_frame(v3.encode_response(answer)) == answer


@given(TXNS, IDS, IDS, BODIES)
def test_adds_that_are_written(txn: int, ledger: int, entry: int, rest: bytes) -> None:
    request = add_of(txn, ledger, entry, rest)
    expected = v3.encode_request(request)
    head = v3_fast_path.add_head_size(txn, ledger, entry, len(request.entry))
    where = room(head)
    end = v3_fast_path.put_add_head(where, MARGIN, txn, ledger, entry, KEY, len(request.entry))
    assert end == MARGIN + head
    assert written(where, head) + bytes(request.entry) == expected
