"""Messages of protocol version 3 beyond the golden vectors."""

from __future__ import annotations

import pytest

from bkbox.errors import EncodingError, FrameError
from bkbox.wire import protobuf, v3
from bkbox.wire.auth import AuthMessage
from bkbox.wire.codes import Code
from bkbox.wire.v3 import Header
from bkbox.wire.v3_format import HEADER, REQUEST, Operation, ProtocolVersion, ReadFlag

KEY = bytes(range(20))
HEADER_BYTES = "0a06080310011804"
"""READ_ENTRY, transaction 4."""


def body(data: bytes) -> bytes:
    return data[4:]


def request_of(operation: Operation, **header: int) -> v3.Request:
    """A request that has a header and nothing else."""
    values = {"version": 3, "operation": operation, "txnId": 7, **header}
    return v3.decode_request(protobuf.encode(REQUEST, {"header": values}))


# ---- proto2 -------------------------------------------------------------------------------------


def test_required_zeros_are_written() -> None:
    answer = v3.AddResponse(0, Code.EOK, 0, 0)
    assert v3.encode_response(answer).hex() == "000000130a060803100218001000aa0606080010001800"
    assert v3.decode_response(body(v3.encode_response(answer))) == answer


@pytest.mark.parametrize("number", [0, 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1])
def test_transaction_ids_are_unsigned(number: int) -> None:
    request = v3.ReadLacRequest(Header(Operation.READ_LAC, number), 9)
    assert v3.decode_request(body(v3.encode_request(request))) == request
    answer = v3.ForceResponse(number, Code.EIO, 9)
    assert v3.decode_response(body(v3.encode_response(answer))) == answer


def test_priorities_are_unsigned_and_have_32_bits() -> None:
    request = request_of(Operation.START_TLS, priority=2**32 - 1)
    assert request.header.priority == 2**32 - 1
    assert "20ffffffff0f" in v3.encode_request(request).hex()
    longer = protobuf.decode(HEADER, bytes.fromhex("08031001180020ffffffffffffffffff01"))
    assert longer["priority"] == 2**32 - 1


@pytest.mark.parametrize("ledger", [-(2**63), -1, 0, 2**63 - 1])
def test_ids_are_signed(ledger: int) -> None:
    request = v3.ForceRequest(Header(Operation.FORCE_LEDGER, 1), ledger)
    assert v3.decode_request(body(v3.encode_request(request))) == request


def test_any_order_of_fields_and_unknown_ones() -> None:
    part = "a2060d" + "f83f07" + "1005" + "a00601" + "0809" + "1a017b"
    mixed = bytes.fromhex(
        "d23e0161" + part + "a53e01020304" + "a13e0102030405060708" + HEADER_BYTES
    )
    request = v3.decode_request(mixed)
    assert request == v3.ReadRequest(
        Header(Operation.READ_ENTRY, 4), 9, 5, master_key=b"{", fencing=True
    )


def test_the_last_of_several_values_counts() -> None:
    twice = bytes.fromhex(HEADER_BYTES + "a2060608010801" + "1005")
    assert v3.decode_request(twice) == v3.ReadRequest(Header(Operation.READ_ENTRY, 4), 1, 5)


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("", None),
        ("a00601", ReadFlag.FENCE_LEDGER),
        ("a00602", ReadFlag.ENTRY_PIGGYBACK),
        ("a00600", None),
        ("a00603", None),
        ("a006ffffffffffffffffff01", None),
        ("a00601a00609", ReadFlag.FENCE_LEDGER),
        ("a20601", None),
    ],
)
def test_a_flag_that_is_not_known_counts_as_absent(flag: str, expected: ReadFlag | None) -> None:
    part = bytes.fromhex("08091005" + flag)
    if flag == "a20601":
        part += b"x"
    data = bytes.fromhex(HEADER_BYTES + "a206") + bytes((len(part),)) + part
    request = v3.decode_request(data)
    assert isinstance(request, v3.ReadRequest)
    assert request.fencing == (expected is ReadFlag.FENCE_LEDGER)
    assert request.piggyback == (expected is ReadFlag.ENTRY_PIGGYBACK)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "0a00",
        "0a0410011804",
        "0a0408031804",
        "0a0408031001",
        "0a06080010011804",
        "0a06080410011804",
        "0a06080310001804",
        "0a060803100d1804",
        HEADER_BYTES + "a206020809",
        HEADER_BYTES + "a206021005",
        HEADER_BYTES + "a20605080910",
        HEADER_BYTES[:-2],
        HEADER_BYTES + "a3",
        HEADER_BYTES + "0001",
        HEADER_BYTES + "0bff",
        "02020000" + "00" * 16,
        "02010000" + "00" * 60,
        "01020000" + "00" * 16,
        "00000002" + "00" * 16,
    ],
)
def test_what_is_no_request_of_this_version(data: str) -> None:
    with pytest.raises(EncodingError):
        v3.decode_request(bytes.fromhex(data))


@pytest.mark.parametrize("first", range(v3.FIRST_BYTE_MIN))
def test_no_message_begins_with_a_version_2_header(first: int) -> None:
    with pytest.raises(EncodingError):
        v3.decode_request(bytes((first,)) + bytes.fromhex(HEADER_BYTES))


# ---- requests -----------------------------------------------------------------------------------

PARTLESS = {
    Operation.AUTH: v3.AuthRequest,
    Operation.START_TLS: v3.StartTlsRequest,
    Operation.GET_BOOKIE_INFO: v3.BookieInfoRequest,
    Operation.RANGE_READ_ENTRY: v3.Unserved,
    Operation.RANGE_ADD_ENTRY: v3.Unserved,
    Operation.BATCH_READ_ENTRY: v3.Unserved,
}


@pytest.mark.parametrize("operation", list(Operation))
def test_requests_without_their_part(operation: Operation) -> None:
    if operation in PARTLESS:
        assert type(request_of(operation)) is PARTLESS[operation]
    else:
        with pytest.raises(FrameError, match="without its"):
            request_of(operation)


def test_a_part_of_another_operation_is_not_its_own() -> None:
    with pytest.raises(FrameError):
        v3.decode_request(bytes.fromhex("0a06080310071804" + "a2060408091005"))


@pytest.mark.parametrize("version", [ProtocolVersion.VERSION_ONE, ProtocolVersion.VERSION_TWO])
def test_headers_of_other_versions_are_read(version: ProtocolVersion) -> None:
    assert request_of(Operation.START_TLS, version=version).header.version == version


def test_bits_that_are_not_known_do_no_harm() -> None:
    header = Header(Operation.ADD_ENTRY, 1)
    plain = v3.AddRequest(header, 9, 5, KEY, b"entry")
    assert v3.encode_request(plain).endswith(b"\x22\x05entry")
    for flags, deferred in ((0, False), (1, True), (2, False), (3, True), (-1, True), (-2, False)):
        part = {"ledgerId": 9, "entryId": 5, "masterKey": KEY, "body": b"e", "writeFlags": flags}
        data = protobuf.encode(
            REQUEST, {"header": {"version": 3, "operation": 2, "txnId": 1}, "addRequest": part}
        )
        request = v3.decode_request(data)
        assert isinstance(request, v3.AddRequest)
        assert request.deferred_sync == deferred


@pytest.mark.parametrize(
    ("wanted", "shown"), [((True, True), "0803"), ((True, False), "0801"), ((False, True), "0802")]
)
def test_what_bookie_info_asks_for(wanted: tuple[bool, bool], shown: str) -> None:
    request = v3.BookieInfoRequest(Header(Operation.GET_BOOKIE_INFO, 1), *wanted)
    assert v3.encode_request(request).hex().endswith("ca0602" + shown)
    assert v3.decode_request(body(v3.encode_request(request))) == request


def test_what_a_read_is() -> None:
    header = Header(Operation.READ_ENTRY, 1)
    assert not v3.ReadRequest(header, 1, 2).long_poll
    assert v3.ReadRequest(header, 1, 2, previous_lac=-1).long_poll
    assert not v3.ReadRequest(header, 1, 2, KEY, fencing=True, previous_lac=4).long_poll


def test_entries_stay_in_place() -> None:
    whole = bytearray(
        v3.encode_request(v3.AddRequest(Header(Operation.ADD_ENTRY, 1), 9, 5, KEY, b"the entry"))
    )
    request = v3.decode_request(memoryview(whole)[4:])
    assert isinstance(request, v3.AddRequest)
    whole[-9:] = b"AN ENTRY!"
    assert request.entry == b"AN ENTRY!"


# ---- responses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", list(Code))
def test_every_code_stands_twice_and_survives(code: Code) -> None:
    for response in (
        v3.AddResponse(5, code, 1, 2),
        v3.ReadResponse(5, code, 1, -1, b"entry", 3, 4),
        v3.WriteLacResponse(5, code, 1),
        v3.ReadLacResponse(5, code, 1, b"packet", b"entry"),
        v3.ForceResponse(5, code, 1),
        v3.ListEntriesResponse(5, code, 1, b""),
        v3.BookieInfoResponse(5, code, 10**15, 0),
        v3.AuthResponse(Header(Operation.AUTH, 5, 100), code, AuthMessage("sasl", b"\x00")),
        v3.Refused(Header(Operation.BATCH_READ_ENTRY, 5, 100, 2), code),
        v3.Refused(Header(Operation.READ_ENTRY, 5), code),
    ):
        data = body(v3.encode_response(response))
        assert v3.decode_response(data) == response
        status = protobuf.encode_varint(code.v3)
        partless = isinstance(response, v3.AuthResponse | v3.Refused)
        assert data.count(b"\x10" + status) >= 1
        assert partless or data.count(b"\x08" + status) >= 1


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        (Code.EOK, Code.ENOENTRY, Code.ENOENTRY),
        (Code.EIO, Code.EOK, Code.EIO),
        (Code.EIO, Code.ENOENTRY, Code.EIO),
        (Code.EOK, Code.EOK, Code.EOK),
    ],
)
def test_an_eok_does_not_cover_an_error(outer: Code, inner: Code, expected: Code) -> None:
    values = {
        "header": {"version": 3, "operation": Operation.ADD_ENTRY, "txnId": 1},
        "status": outer.v3,
        "addResponse": {"status": inner.v3, "ledgerId": 1, "entryId": 2},
    }
    data = protobuf.encode(v3.RESPONSE, values)
    assert v3.decode_response(data) == v3.AddResponse(1, expected, 1, 2)


def test_an_answer_without_its_part_says_nothing() -> None:
    for part in ("", "aa0606080010091805"):
        data = bytes.fromhex(HEADER_BYTES + "1000" + part)
        header = Header(Operation.READ_ENTRY, 4)
        assert v3.decode_response(data) == v3.Refused(header, Code.EOK)


def test_a_refused_start_tls_is_no_start_of_tls() -> None:
    header = Header(Operation.START_TLS, 1)
    for part in ("", "d20600"):
        data = bytes.fromhex("0a06080310091801" + "109403" + part)
        assert v3.decode_response(data) == v3.Refused(header, Code.EBADREQ)
    accepted = v3.StartTlsResponse(1)
    assert v3.decode_response(body(v3.encode_response(accepted))) == accepted


@pytest.mark.parametrize(
    "data", ["", HEADER_BYTES, HEADER_BYTES + "1001", HEADER_BYTES + "1000a20604080110091805"]
)
def test_what_is_no_response(data: str) -> None:
    with pytest.raises(EncodingError):
        v3.decode_response(bytes.fromhex(data))


READ = Header(Operation.READ_ENTRY, 3, 100)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (v3.AddRequest(READ, 1, 2, KEY, b""), v3.AddResponse(3, Code.EIO, 1, 2)),
        (v3.ReadRequest(READ, 1, -1), v3.ReadResponse(3, Code.EIO, 1, -1)),
        (v3.WriteLacRequest(READ, 1, 2, KEY, b""), v3.WriteLacResponse(3, Code.EIO, 1)),
        (v3.ReadLacRequest(READ, 1), v3.ReadLacResponse(3, Code.EIO, 1)),
        (v3.ForceRequest(READ, 1), v3.ForceResponse(3, Code.EIO, 1)),
        (v3.ListEntriesRequest(READ, 1), v3.ListEntriesResponse(3, Code.EIO, 1)),
        (v3.BookieInfoRequest(READ), v3.BookieInfoResponse(3, Code.EIO)),
        (v3.StartTlsRequest(READ), v3.Refused(READ, Code.EIO)),
        (v3.AuthRequest(READ, None), v3.Refused(READ, Code.EIO)),
        (v3.Unserved(READ), v3.Refused(READ, Code.EIO)),
    ],
)
def test_refusals_carry_the_part_and_the_ids(request_: v3.Request, expected: v3.Response) -> None:
    assert v3.refusal(request_, Code.EIO) == expected
