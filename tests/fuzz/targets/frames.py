"""Requests and answers of both versions: the codecs, and what the kernel makes of the same bytes."""

from __future__ import annotations

import struct
from array import array
from types import SimpleNamespace

from bkbox.errors import BkboxError, EncodingError, FrameError
from bkbox.storage.log.segment import RECORD_HEADER_BYTES, decode_record
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.frames import bodies, complete_frames
from bkbox.wire.v3_format import Operation
from tests.fuzz.kernels import alike
from tests.fuzz.target import KEY, Target, hex_in, vectors

LIMIT = 4096
HOT = (*range(4), 1 << 62)
"""Ledgers of a walk that take adds."""
FILLED = (4, 5)
"""Those that take recovery adds only."""


def exact(data: bytes) -> memoryview:
    """The bytes in memory that ends where they end: a bytes object has a zero behind it."""
    return memoryview(array("B", data))


def frames_of(name: str) -> list[bytes]:
    return [frame for frame in hex_in(vectors(name), "frame") if len(frame) < 1000]


# ---- one body ---------------------------------------------------------------------------------------


def check_v2(data: bytes) -> object:
    return _request_v2(data), _response_v2(data)


def _request_v2(data: bytes) -> object:
    try:
        request = v2.decode_request(data)
    except FrameError as error:
        _refuses_to_peek(data)
        return _way(error)
    v2.peek_request(data)
    refused = v2.refuse(data, Code.EIO)
    if refused:
        v2.decode_response(refused[4:])
    if not isinstance(request, v2.BadVersion | v2.BadAdd):
        assert v2.decode_request(v2.encode_request(request)[4:]) == request
    return type(request), request.version


def _refuses_to_peek(data: bytes) -> None:
    """What has passed peek_request is handed to a worker, which has to be able to decode it."""
    try:
        header = v2.peek_request(data)
    except FrameError:
        return
    assert isinstance(header, v2.Header), header
    assert header.opcode == v2.OP_AUTH


def _response_v2(data: bytes) -> object:
    try:
        response = v2.decode_response(data)
    except FrameError as error:
        return _way(error)
    assert v2.decode_response(v2.encode_response(response)[4:]) == response
    return type(response), getattr(response, "code", None)


def check_v3(data: bytes) -> object:
    return _request_v3(data), _response_v3(data)


def _request_v3(data: bytes) -> object:
    plain = alike(lambda kernel: plain_request(kernel, data))
    try:
        request = v3.decode_request(data)
    except (EncodingError, FrameError) as error:
        assert plain is None, "plain, and nothing that can be decoded"
        return _way(error)
    assert v3.decode_request(v3.encode_request(request)[4:]) == request
    v3.decode_response(v3.encode_response(v3.refusal(request, Code.EIO))[4:])
    if plain is not None:
        header = request.header._replace(priority=0)
        assert isinstance(request, v3.AddRequest | v3.ReadRequest)
        assert plain == _without_priority(request, header)
    return type(request), request.header.version, plain is None


def _without_priority(
    request: v3.AddRequest | v3.ReadRequest, header: v3.Header
) -> v3.AddRequest | v3.ReadRequest:
    if isinstance(request, v3.AddRequest):
        assert (request.recovery, request.deferred_sync) == (False, False)
        return v3.AddRequest(
            header, request.ledger_id, request.entry_id, request.master_key, bytes(request.entry)
        )
    assert (request.fencing, request.piggyback, request.long_poll) == (False, False, False)
    return v3.ReadRequest(header, request.ledger_id, request.entry_id, request.master_key)


def plain_request(kernel: SimpleNamespace, data: bytes) -> v3.AddRequest | v3.ReadRequest | None:
    """The request that the kernel finds in a body; None: not plain."""
    plain = kernel.v3_fast_path.FastRequestV3()
    found = plain.parse(exact(data), 0, len(data))
    if found == 0:
        return None
    key = data[plain.key_at : plain.key_at + 20] if plain.key_at else None
    assert key is None or len(key) == 20
    if found == kernel.v3_fast_path.READ:
        header = v3.Header(Operation.READ_ENTRY, plain.txn)
        return v3.ReadRequest(header, plain.ledger, plain.entry, key)
    assert key is not None
    header = v3.Header(Operation.ADD_ENTRY, plain.txn)
    assert plain.body_end == len(data)
    return v3.AddRequest(header, plain.ledger, plain.entry, key, data[plain.body_at :])


def _response_v3(data: bytes) -> object:
    plain = alike(lambda kernel: plain_response(kernel, data))
    try:
        response = v3.decode_response(data)
    except EncodingError as error:
        assert plain is None, "plain, and nothing that can be decoded"
        return _way(error)
    assert v3.decode_response(v3.encode_response(response)[4:]) == response
    assert plain in (None, response), f"plain {plain!r}, which is {response!r}"
    return type(response), plain is None


def plain_response(kernel: SimpleNamespace, data: bytes) -> v3.Response | None:
    """The answer that the kernel finds in a body; None: not plain."""
    plain = kernel.v3_fast_path.FastResponseV3()
    found = plain.parse(exact(data), 0, len(data))
    if found == 0:
        return None
    code = next(code for code in Code if code.v3 == plain.code)
    if found == kernel.v3_fast_path.ADD:
        return v3.AddResponse(plain.txn, code, plain.ledger, plain.entry)
    body = data[plain.body_at : plain.body_end] if plain.body_at else None
    lac = None if plain.lac == kernel.v3_fast_path.NO_LAC else plain.lac
    return v3.ReadResponse(plain.txn, code, plain.ledger, plain.entry, body, lac)


def _way(error: BkboxError) -> object:
    """Which error, without the numbers in it."""
    return "".join(letter for letter in str(error)[:40] if not letter.isdigit())


# ---- frames in a row --------------------------------------------------------------------------------


def check_cut(data: bytes) -> object:
    """Where the whole frames end, to the eyes of the codec and of the kernel."""
    try:
        end: object = complete_frames(data, LIMIT)
        assert sum(4 + len(body) for body in bodies(data, LIMIT)) == end
    except FrameError as error:
        end = FrameError, str(error)
    kernels = alike(
        lambda kernel: kernel.add_responses.whole_frames(exact(data), 0, len(data), LIMIT)
    )
    assert kernels == end
    return type(end)


def check_walk(data: bytes) -> object:
    """A batch in a worker: what is taken as plain and what is handed to Python are all its frames, in order."""
    found = alike(lambda kernel: _walked(kernel, data))
    if isinstance(found, str):
        return found
    slow, records, reads, answers, recovered = found  # type: ignore[misc]
    whole = _whole(data)
    assert len(slow) + len(records) + len(reads) == len(whole)
    adds = [_entry_of(body) for body in whole if body not in slow]
    for ledger, entry in records:
        assert (ledger, entry) in adds
    taken = [_request(body) for body in whole if body not in slow]
    recoveries = [each for each in taken if isinstance(each, v2.AddRequest) and each.recovery]
    assert len(recoveries) == recovered
    assert {each.ledger_id for each in recoveries} <= {*HOT, *FILLED}
    ordinary = {ledger for ledger, _ in records} - {each.ledger_id for each in recoveries}
    assert ordinary <= set(HOT), "an ordinary add of a ledger that takes recovery adds only"
    return len(slow), len(records), len(reads), len(answers), recovered


def _whole(data: bytes) -> list[bytes]:
    """The bodies of a batch; what is too short at its end to be a frame, and is never handed on, is left out."""
    found = []
    while len(data) > 4:
        end = 4 + int.from_bytes(data[:4])
        found.append(data[4:end])
        data = data[end:]
    return found


def _request(body: bytes) -> object:
    return v2.decode_request(body) if body[0] < v3.FIRST_BYTE_MIN else v3.decode_request(body)


def _entry_of(body: bytes) -> tuple[int, bytes] | None:
    request = _request(body)
    if isinstance(request, v2.AddRequest | v3.AddRequest):
        return request.ledger_id, bytes(request.entry)
    return None


class NoSource:
    """A log of which nothing is ever asked."""

    following = False


def _walked(kernel: SimpleNamespace, data: bytes) -> object:
    area = exact(data)
    slow: list[bytes] = []
    reads: list[tuple[int, int, int, int]] = []
    dispatcher = kernel.dispatch.FrameDispatcher()
    for ledger in HOT:
        dispatcher.hot[ledger] = kernel.add_group.AdmittedLedger(ledger, KEY)
    for ledger in FILLED:
        dispatcher.filled[ledger] = kernel.add_group.AdmittedLedger(ledger, KEY)
    adds = kernel.add_group.AddBatch()
    adds.begin(area)

    def read(version: int, txn: int, ledger: int, entry: int) -> bytes:
        reads.append((version, txn, ledger, entry))
        return b"\0\0\0\x01r"

    batch = kernel.read_group.ReadBatch(
        kernel.memtable.EntryLookup(lambda *_: None, 1 << 20),
        kernel.entry_reader.Fetch(NoSource(), NoSource()),
        lambda _ledger: -1,
        read,
    )
    try:
        dispatcher.dispatch(
            area, 0, len(data), 7, adds, batch, lambda _c, start, end: slow.append(data[start:end])
        )
    except ValueError as error:
        return str(error)  # the front-end passes on whole frames only
    slot = memoryview(bytearray(64 + 64 * len(data)))
    writer = kernel.response_writer.ResponseWriter(lambda _used: slot)
    batch.serve(writer)
    adds.respond(writer, 0, 0, lambda _number: b"")
    return slow, _records(adds), reads, bytes(slot[: writer.used]), adds.recovered


def _records(adds: object) -> list[tuple[int, bytes]]:
    """(ledger, entry as on the wire) of the records that a batch of adds is packed to."""
    room = bytearray(adds.record_bytes)  # type: ignore[attr-defined]
    end = adds.pack(room, 0, 99, 3, 64)  # type: ignore[attr-defined]
    assert end == len(room)
    found = []
    at = 0
    while at < end:
        (size,) = struct.unpack_from(">I", room, at + 4)
        after = at + RECORD_HEADER_BYTES + size
        record = decode_record(bytes(room[at:after]), 99, 3, 64 + at)
        assert record is not None
        found.append((int.from_bytes(record.body[:8], "big", signed=True), bytes(record.body)))
        at = after
    return found


# ---- where they begin -------------------------------------------------------------------------------


def _add(ledger: int, entry: int, rest: bytes = b"payload") -> bytes:
    return struct.pack(">qqqq", ledger, entry, entry - 1, len(rest)) + rest


def plain_frames() -> list[bytes]:
    """Adds and reads of ledgers that are hot, or filled, of both versions, one by one and together."""
    made = []
    for ledger, entry in ((1, 0), (2, 300), (FILLED[0], 9), (1 << 62, (1 << 63) - 1)):
        body = _add(ledger, entry)
        add, read = v3.Header(Operation.ADD_ENTRY, 7), v3.Header(Operation.READ_ENTRY, 1 << 40)
        made += [
            v2.encode_request(v2.AddRequest(2, 0, KEY, body)),
            v2.encode_request(v2.AddRequest(2, 2, KEY, body)),
            v2.encode_request(v2.AddRequest(2, 6, KEY, body)),
            v2.encode_request(v2.AddRequest(2, 0, KEY, body[:24])),
            v2.encode_request(v2.ReadRequest(2, 0, ledger, entry, None)),
            v2.encode_request(v2.ReadRequest(2, 1, ledger, -1, KEY)),
            v3.encode_request(v3.AddRequest(add, ledger, entry, KEY, body)),
            v3.encode_request(v3.ReadRequest(read, ledger, entry, None)),
            v3.encode_request(v3.ReadRequest(read, ledger, entry, KEY)),
        ]
    return made


def plain_answers() -> list[bytes]:
    """Answers to such requests."""
    made = []
    for txn, code, ledger, entry, lac in (
        (1, Code.EOK, 1, 5, None),
        (2**64 - 1, Code.EFENCED, 2**63 - 1, -1, -1),
        (300, Code.ENOENTRY, 0, 2**63 - 1, 1 << 62),
    ):
        made += [
            v2.encode_response(v2.AddResponse(2, code, ledger, entry)),
            v2.encode_response(v2.ReadResponse(2, code, ledger, entry, b"found")),
            v3.encode_response(v3.AddResponse(txn, code, ledger, entry)),
            v3.encode_response(v3.ReadResponse(txn, code, ledger, entry, b"found", lac)),
            v3.encode_response(v3.ReadResponse(txn, code, ledger, entry, None, lac)),
        ]
    return made


def _bodies(names: tuple[str, ...]) -> list[bytes]:
    frames = [frame for name in names for frame in frames_of(name)]
    return [frame[4:] for frame in frames + plain_frames() + plain_answers()]


def _rows() -> list[bytes]:
    frames = frames_of("wire-v2.json") + frames_of("wire-v3.json") + plain_frames()
    return [*frames[::3], b"".join(plain_frames()), b"".join(frames[:9]), b"\0\0\0\x01\x02"]


TARGETS = (
    Target("frames-v2", "bodies of version 2", lambda: _bodies(("wire-v2.json",)), check_v2),
    Target(
        "frames-v3",
        "bodies of version 3, plain and generic",
        lambda: _bodies(("wire-v3.json",)),
        check_v3,
    ),
    Target("frames-cut", "where whole frames end", _rows, check_cut),
    Target("walk", "a worker's batch of frames", _rows, check_walk, 0.2),
)
