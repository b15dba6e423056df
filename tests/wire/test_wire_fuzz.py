"""Decoders give a value or their documented error, whatever arrives; values return."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.errors import EncodingError, FrameError
from bkbox.wire import auth, availability, protobuf, v2, v3
from bkbox.wire.auth import AuthMessage
from bkbox.wire.codes import Code
from bkbox.wire.frames import bodies, complete_frames
from bkbox.wire.metadata import (
    cookie,
    layout,
    ledger_metadata,
    local_ledger,
    service_info,
    underreplication,
)
from bkbox.wire.metadata.ledger import DigestType, Fragment, LedgerMetadata, LedgerState
from bkbox.wire.v3_format import Operation
from tests.harness.seeds import EXAMPLES

FOLDER = Path(__file__).parent / "vectors"


def _samples() -> list[bytes]:
    metadata = json.loads((FOLDER / "metadata.json").read_text(encoding="utf-8"))
    frames = [
        case
        for name in ("wire-v2.json", "wire-v3.json")
        for case in json.loads((FOLDER / name).read_text(encoding="utf-8"))["cases"]
    ]
    stored = [
        bytes.fromhex(case["bytes_hex"])
        for group, cases in metadata.items()
        if group != "about"
        for case in cases
        if 0 < len(case.get("bytes_hex", "")) < 2000
    ]
    return stored[::3] + [bytes.fromhex(case["frame"])[4:][:200] for case in frames]


SAMPLES = [sample for sample in _samples() if sample]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A stored payload or a body with a few bytes changed, cut or put in."""
    data = bytearray(draw(st.sampled_from(SAMPLES)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


DECODERS: list[tuple[Callable[[bytes], object], type[Exception] | tuple[type[Exception], ...]]] = [
    (v2.decode_request, FrameError),
    (v2.decode_response, FrameError),
    (v2.peek_request, FrameError),
    (v3.decode_request, (EncodingError, FrameError)),
    (v3.decode_response, EncodingError),
    (complete_frames, FrameError),
    (lambda data: list(bodies(data)), FrameError),
    (lambda data: v2.refuse(data, Code.EIO), FrameError),
    (auth.decode, EncodingError),
    (lambda data: availability.decode(data).total, EncodingError),
    (cookie.decode, EncodingError),
    (layout.decode, EncodingError),
    (lambda data: ledger_metadata.decode(LedgerId(1), data), EncodingError),
    (local_ledger.decode, EncodingError),
    (lambda data: service_info.decode(BookieId("a"), data), EncodingError),
    (underreplication.decode_ledger, EncodingError),
    (underreplication.decode_layout, EncodingError),
    (underreplication.decode_holder, EncodingError),
    (underreplication.decode_check_time, EncodingError),
    (underreplication.decode_recovery_delay, EncodingError),
]


@settings(max_examples=6 * EXAMPLES, deadline=None)
@given(st.one_of(damaged(), st.binary(max_size=80)))
@example(b"\xff" * 12)
@example(b"")
@example(b"\x1c0")
def test_only_documented_errors(data: bytes) -> None:
    for decode, error in DECODERS:
        with contextlib.suppress(error):
            decode(data)


@settings(max_examples=3 * EXAMPLES, deadline=None)
@given(damaged())
def test_what_peek_accepts_can_be_routed(data: bytes) -> None:
    """Where a body decodes, peeking gives the same ids; where peeking refuses, so does decoding."""
    try:
        header = v2.peek_request(data)
    except FrameError:
        with pytest.raises(FrameError):
            v2.decode_request(data)
        return
    if isinstance(header, v2.BadVersion) or header.opcode == v2.OP_AUTH:
        return
    request = v2.decode_request(data)
    assert not isinstance(request, v2.AuthRequest)
    assert request.ledger_id == header.ledger_id


ids = st.integers(-(2**63), 2**63 - 1)
versions = st.integers(0, 2)
keys = st.binary(min_size=20, max_size=20)

requests = st.one_of(
    st.builds(v2.AddRequest, st.just(2), st.integers(0, 7), keys, st.binary(min_size=24)),
    st.builds(v2.ReadRequest, versions, st.just(0), ids, ids, st.none()),
    st.builds(v2.ReadRequest, st.just(2), st.sampled_from((1, 5)), ids, ids, keys),
    st.builds(
        v2.BatchReadRequest, st.just(2), st.sampled_from((1, 5)), ids, ids, ids,
        st.integers(-(2**31), 2**31 - 1), ids, keys,
    ),
    st.builds(v2.AuthRequest, versions, st.just(0), st.builds(AuthMessage, st.text(), st.binary())),
)  # fmt: skip
responses = st.one_of(
    st.builds(v2.AddResponse, versions, st.sampled_from(Code), ids, ids),
    st.builds(v2.ReadResponse, versions, st.just(Code.EOK), ids, ids, st.binary()),
    st.builds(
        v2.BatchReadResponse, versions, st.just(Code.EOK), ids, ids, ids,
        st.lists(st.binary()).map(tuple),
    ),
    st.builds(v2.AuthResponse, versions, st.builds(AuthMessage, st.text(), st.binary())),
)  # fmt: skip


@settings(deadline=None)
@given(requests, responses)
def test_messages_return(request: v2.Request, response: v2.Response) -> None:
    assert v2.decode_request(v2.encode_request(request)[4:]) == request
    assert v2.decode_response(v2.encode_response(response)[4:]) == response


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_return(number: int) -> None:
    message = protobuf.Message("M", protobuf.Field(1, "n", protobuf.Kind.INT64))
    data = protobuf.encode(message, {"n": number})
    assert len(data) <= 11
    assert (len(data) == 11) == (number < 0)
    assert protobuf.decode(message, data) == {"n": number}


transactions = st.integers(0, 2**64 - 1)
priorities = st.integers(0, 2**32 - 1)
codes = st.sampled_from(Code)
lacs = st.none() | ids
bytes_or_none = st.none() | st.binary()
messages = st.none() | st.builds(AuthMessage, st.text(), st.binary())
partless = (Operation.RANGE_READ_ENTRY, Operation.RANGE_ADD_ENTRY, Operation.BATCH_READ_ENTRY)


def headers(*operations: Operation) -> st.SearchStrategy[v3.Header]:
    return st.builds(
        v3.Header, st.sampled_from(operations), transactions, priorities, st.integers(1, 3)
    )


v3_requests: st.SearchStrategy[v3.Request] = st.one_of(
    st.builds(
        v3.AddRequest, headers(Operation.ADD_ENTRY), ids, ids, st.binary(), st.binary(),
        st.booleans(), st.booleans(),
    ),
    st.builds(
        v3.ReadRequest, headers(Operation.READ_ENTRY), ids, ids, bytes_or_none, st.booleans(),
        st.just(False), lacs, lacs,
    ),
    st.builds(
        v3.ReadRequest, headers(Operation.READ_ENTRY), ids, ids, bytes_or_none, st.just(False),
        st.just(True), lacs, lacs,
    ),
    st.builds(
        v3.WriteLacRequest, headers(Operation.WRITE_LAC), ids, ids, st.binary(), st.binary()
    ),
    st.builds(v3.ReadLacRequest, headers(Operation.READ_LAC), ids),
    st.builds(v3.ForceRequest, headers(Operation.FORCE_LEDGER), ids),
    st.builds(v3.ListEntriesRequest, headers(Operation.GET_LIST_OF_ENTRIES_OF_LEDGER), ids),
    st.builds(
        v3.BookieInfoRequest, headers(Operation.GET_BOOKIE_INFO), st.booleans(), st.booleans()
    ),
    st.builds(v3.AuthRequest, headers(Operation.AUTH), messages),
    st.builds(v3.StartTlsRequest, headers(Operation.START_TLS)),
    st.builds(v3.Unserved, headers(*partless)),
)  # fmt: skip
v3_responses: st.SearchStrategy[v3.Response] = st.one_of(
    st.builds(v3.AddResponse, transactions, codes, ids, ids),
    st.builds(v3.ReadResponse, transactions, codes, ids, ids, bytes_or_none, lacs, lacs),
    st.builds(v3.WriteLacResponse, transactions, codes, ids),
    st.builds(v3.ReadLacResponse, transactions, codes, ids, bytes_or_none, bytes_or_none),
    st.builds(v3.ForceResponse, transactions, codes, ids),
    st.builds(v3.ListEntriesResponse, transactions, codes, ids, bytes_or_none),
    st.builds(v3.BookieInfoResponse, transactions, codes, lacs, lacs),
    st.builds(v3.AuthResponse, headers(Operation.AUTH), codes, messages),
    st.builds(v3.StartTlsResponse, transactions),
    st.builds(v3.Refused, headers(*set(Operation) - {Operation.AUTH}), codes),
)


@settings(max_examples=3 * EXAMPLES, deadline=None)
@given(v3_requests, v3_responses)
def test_messages_of_version_3_return(request: v3.Request, response: v3.Response) -> None:
    assert v3.decode_request(v3.encode_request(request)[4:]) == request
    assert v3.decode_response(v3.encode_response(response)[4:]) == response
    asked = v3.refusal(request, Code.EFENCED)
    assert v3.decode_response(v3.encode_response(asked)[4:]) in (
        asked,
        v3.AuthResponse(request.header, Code.EFENCED, None),
    )


@settings(max_examples=3 * EXAMPLES, deadline=None)
@given(damaged())
def test_what_version_3_reads_it_writes_to_be_read_alike(data: bytes) -> None:
    with contextlib.suppress(EncodingError, FrameError):
        request = v3.decode_request(data)
        assert v3.decode_request(v3.encode_request(request)[4:]) == request
        assert data[0] >= v3.FIRST_BYTE_MIN


fragments = st.lists(st.sampled_from("abcdef"), min_size=3, max_size=3, unique=True)
unknowns = st.lists(st.tuples(st.integers(13, 2**29 - 1), st.binary(max_size=9))).map(
    lambda fields: b"".join(
        protobuf.encode_varint(number << 3 | 2) + protobuf.encode_varint(len(data)) + data
        for number, data in fields
    )
)


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    """Ledgers of format version 3, with fields that are not known here."""
    starts = sorted(draw(st.sets(st.integers(0, 2**63 - 1), min_size=1, max_size=4)))
    state = draw(st.sampled_from(LedgerState))
    closed = state is LedgerState.CLOSED
    custom = draw(st.dictionaries(st.text(), st.binary(), max_size=3))
    kept = {key: draw(unknowns) for key in custom}
    return LedgerMetadata(
        LedgerId(7),
        3,
        2,
        draw(st.integers(1, 2)),
        state,
        tuple(
            Fragment(EntryId(start), tuple(map(BookieId, draw(fragments))), draw(unknowns))
            for start in starts
        ),
        EntryId(draw(st.integers(-1, 2**63 - 1)) if closed else -1),
        draw(st.integers(0, 2**63 - 1)) if closed else 0,
        draw(st.sampled_from(DigestType)),
        draw(st.binary()),
        tuple(custom.items()),
        ctime_ms=draw(ids),
        store_ctime=True,
        creator_token=draw(ids),
        unknown=draw(unknowns),
        custom_unknown=tuple((key, kept[key]) for key in custom if kept[key]),
    )


@settings(deadline=None)
@given(ledgers())
def test_ledger_metadata_returns_with_what_is_not_known(ledger: LedgerMetadata) -> None:
    assert ledger_metadata.decode(LedgerId(7), ledger_metadata.encode(ledger)) == ledger
