"""Decoders give a value or their documented error, whatever arrives; values return."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bkbox.errors import EncodingError, FrameError
from bkbox.ids import BookieId, LedgerId
from bkbox.wire import (
    auth,
    availability,
    cookie,
    layout,
    ledger_metadata,
    local_ledger,
    protobuf,
    service_info,
    underreplication,
    v2,
)
from bkbox.wire.auth import AuthMessage
from bkbox.wire.codes import Code
from bkbox.wire.frames import bodies, complete_frames

FOLDER = Path(__file__).parent / "vectors"


def _samples() -> list[bytes]:
    metadata = json.loads((FOLDER / "metadata.json").read_text(encoding="utf-8"))
    frames = json.loads((FOLDER / "wire-v2.json").read_text(encoding="utf-8"))
    stored = [
        bytes.fromhex(case["bytes_hex"])
        for group, cases in metadata.items()
        if group != "about"
        for case in cases
        if 0 < len(case.get("bytes_hex", "")) < 2000
    ]
    return stored[::3] + [bytes.fromhex(case["frame"])[4:][:200] for case in frames["cases"]]


SAMPLES = [sample for sample in _samples() if sample]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A stored payload or a body with a few bytes changed, cut or put in."""
    data = bytearray(draw(st.sampled_from(SAMPLES)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


DECODERS: list[tuple[Callable[[bytes], object], type[Exception]]] = [
    (v2.decode_request, FrameError),
    (v2.decode_response, FrameError),
    (v2.peek_request, FrameError),
    (complete_frames, FrameError),
    (lambda data: list(bodies(data)), FrameError),
    (lambda data: v2.refuse_all(data, Code.EIO), FrameError),
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


@settings(max_examples=600, deadline=None)
@given(st.one_of(damaged(), st.binary(max_size=80)))
@example(b"\xff" * 12)
@example(b"")
def test_only_documented_errors(data: bytes) -> None:
    for decode, error in DECODERS:
        with contextlib.suppress(error):
            decode(data)


@settings(max_examples=300, deadline=None)
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
