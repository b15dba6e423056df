"""What one running bookie answers in version 2, frame by frame, good input and bad.

One bookie for the whole file: every test takes ledgers of its own.
"""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from collections.abc import Iterator

import psutil
import pytest

from tests.harness import raw
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess
from tests.harness.raw import (
    EBADREQ,
    EBADVERSION,
    EFENCED,
    ENOENTRY,
    ENOLEDGER,
    EOK,
    EUA,
    FENCE,
    HIGH_PRIORITY,
    RECOVERY,
    RawClient,
    add_frame,
    batch_frame,
    make_entry,
    master_key,
    payload_of,
    read_frame,
)
from tests.harness.waiting import wait_for

FRAME_BYTES_MAX = 5_242_880
LARGEST_PAYLOAD = FRAME_BYTES_MAX - 4 - 24 - 40
"""Of an ADD with a CRC32 digest: prefix, header and key, entry header and digest are taken off."""

_ledgers = itertools.count(1)


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieProcess]:
    root = tmp_path_factory.mktemp("answers")
    made = BookieProcess(root, f"sqlite:{root}/metadata.db").init()
    made.start()
    yield made
    assert made.stop() == 0


@pytest.fixture
def client(bookie: BookieProcess) -> Iterator[RawClient]:
    with RawClient(bookie.port) as made:
        yield made


@pytest.fixture
def ledger() -> int:
    return next(_ledgers)


@pytest.fixture
def closes(bookie: BookieProcess) -> Iterator[object]:
    """Send bytes on a connection of their own: it is closed without an answer, others live on."""
    with RawClient(bookie.port) as other:
        mine = next(_ledgers)
        assert other.add(mine, 0, b"before") == EOK

        def check(data: bytes) -> None:
            with RawClient(bookie.port) as bad, pytest.raises(EOFError):
                bad.send(data)
                bad.frame()
            assert payload_of(other.read(mine, 0).body) == b"before"

        yield check


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def add_body(entry: bytes, version: int = 2) -> bytes:
    return struct.pack(">BBH", version, 1, 0) + master_key() + entry


# ---- adds and reads ---------------------------------------------------------------------------------


def test_an_added_entry_is_read_back_byte_for_byte(client: RawClient, ledger: int) -> None:
    assert client.add(ledger, 0, b"hello") == EOK
    answer = client.read(ledger, 0)
    assert answer == raw.Answer(2, EOK, ledger, 0, make_entry(ledger, 0, b"hello"))


def test_answers_carry_the_ids_of_the_request(client: RawClient, ledger: int) -> None:
    client.send(add_frame(ledger, 7, b"x"))
    assert client.answer() == raw.Answer(1, EOK, ledger, 7, b"")
    assert client.read(ledger, 8) == raw.Answer(2, ENOENTRY, ledger, 8, b"")


def test_the_answer_to_an_add_is_24_bytes(client: RawClient, ledger: int) -> None:
    client.send(add_frame(ledger, 0, b"x"))
    assert client.frame() == struct.pack(">BBHiqq", 2, 1, 0, EOK, ledger, 0)


def test_the_last_entry_is_the_highest_id_and_the_answer_says_minus_one(
    client: RawClient, ledger: int
) -> None:
    for entry in (0, 5, 3):
        assert client.add(ledger, entry, b"%d" % entry) == EOK
    answer = client.read(ledger, -1)
    assert (answer.code, answer.entry, payload_of(answer.body)) == (EOK, -1, b"5")


def test_reads_of_an_unknown_ledger_say_so_and_create_nothing(
    client: RawClient, ledger: int
) -> None:
    assert [client.read(ledger, entry).code for entry in (0, 99, -1)] == [ENOLEDGER] * 3
    client.send(batch_frame(ledger, 0, 1))
    assert client.answer().code == ENOLEDGER
    assert client.read(ledger, 0).code == ENOLEDGER


def test_an_entry_written_again_is_the_last_one_written(client: RawClient, ledger: int) -> None:
    for payload in (b"first", b"second", b"a much longer third"):
        assert client.add(ledger, 0, payload) == EOK
    assert payload_of(client.read(ledger, 0).body) == b"a much longer third"
    # Within one segment of TCP and so within one batch, too.
    client.send(add_frame(ledger, 0, b"fourth") + add_frame(ledger, 0, b"fifth"))
    assert [client.answer().code for _ in range(2)] == [EOK, EOK]
    assert payload_of(client.read(ledger, 0).body) == b"fifth"


def test_ids_up_to_the_largest_are_served(client: RawClient) -> None:
    largest = (1 << 63) - 1
    assert client.add(largest, largest, b"far away") == EOK
    assert payload_of(client.read(largest, largest).body) == b"far away"
    assert payload_of(client.read(largest, -1).body) == b"far away"


@pytest.mark.parametrize(("ledger_id", "entry_id"), [(-1, 0), (-(1 << 63), 0), (1, -1), (1, -4096)])
def test_negative_ids_of_an_add_are_refused(
    client: RawClient, ledger_id: int, entry_id: int
) -> None:
    assert client.add(ledger_id, entry_id, b"x") == EBADREQ
    assert client.add(ledger_id, entry_id, b"x", RECOVERY | HIGH_PRIORITY) == EBADREQ


def test_negative_ids_of_a_read_are_refused(client: RawClient, ledger: int) -> None:
    assert client.add(ledger, 0, b"x") == EOK
    assert client.read(-5, 0).code == EBADREQ
    assert client.read(ledger, -2).code == EBADREQ
    assert client.read(ledger, -(1 << 63)).code == EBADREQ
    assert client.fence(-5).code == EBADREQ
    # A fencing read that is refused has not fenced.
    assert client.fence(ledger, -2).code == EBADREQ
    assert client.add(ledger, 1, b"y") == EOK


# ---- master keys ------------------------------------------------------------------------------------


def test_a_wrong_master_key_changes_nothing(client: RawClient, ledger: int) -> None:
    wrong = master_key(b"wrong")
    assert client.add(ledger, 0, b"mine") == EOK
    assert client.add(ledger, 0, b"theirs", key=wrong) == EUA
    assert client.add(ledger, 1, b"theirs", RECOVERY | HIGH_PRIORITY, wrong) == EUA
    assert client.fence(ledger, key=wrong) == raw.Answer(2, EUA, ledger, -1, b"")
    assert payload_of(client.read(ledger, 0).body) == b"mine"
    assert client.read(ledger, 1).code == ENOENTRY
    assert client.add(ledger, 1, b"still open") == EOK


def test_the_first_key_is_the_ledger_s(client: RawClient, ledger: int) -> None:
    mine = master_key(b"secret")
    assert client.add(ledger, 0, b"x", key=mine) == EOK
    assert client.add(ledger, 1, b"x") == EUA
    assert client.fence(ledger).code == EUA
    assert client.fence(ledger, key=mine).code == EOK


def test_the_key_is_looked_at_before_the_fence(client: RawClient, ledger: int) -> None:
    assert client.fence(ledger).code == ENOENTRY
    assert client.add(ledger, 0, b"x", key=master_key(b"wrong")) == EUA
    assert client.add(ledger, 0, b"x") == EFENCED


# ---- fencing ----------------------------------------------------------------------------------------


def test_a_fence_stops_adds_for_good_and_takes_recovery_adds(
    client: RawClient, ledger: int
) -> None:
    assert client.add(ledger, 0, b"acked") == EOK
    answer = client.fence(ledger)
    assert (answer.code, payload_of(answer.body)) == (EOK, b"acked")
    assert client.add(ledger, 1, b"late") == EFENCED
    assert client.read(ledger, 1).code == ENOENTRY
    assert client.add(ledger, 1, b"recovered", RECOVERY | HIGH_PRIORITY) == EOK
    assert client.fence(ledger, 1).code == EOK
    assert client.add(ledger, 2, b"late") == EFENCED
    assert client.add(ledger, 2, b"high priority is no recovery", HIGH_PRIORITY) == EFENCED


def test_fencing_an_unknown_ledger_creates_it_fenced(client: RawClient, ledger: int) -> None:
    assert client.fence(ledger) == raw.Answer(2, ENOENTRY, ledger, -1, b"")
    assert client.add(ledger, 0, b"late") == EFENCED
    assert client.add(ledger, 0, b"other", RECOVERY, master_key(b"other")) == EUA
    assert client.read(ledger, 0).code == ENOENTRY


def test_a_recovery_add_to_an_unknown_ledger_creates_it(client: RawClient, ledger: int) -> None:
    assert client.add(ledger, 4, b"copied", RECOVERY | HIGH_PRIORITY) == EOK
    assert payload_of(client.read(ledger, -1).body) == b"copied"
    assert client.add(ledger, 5, b"open") == EOK


def test_a_fence_behind_adds_sees_them_and_adds_behind_it_are_refused(
    client: RawClient, ledger: int
) -> None:
    adds = b"".join(add_frame(ledger, entry, b"%d" % entry) for entry in range(200))
    late = b"".join(add_frame(ledger, entry, b"late") for entry in range(200, 400))
    client.send(adds + read_frame(ledger, -1, FENCE) + late)
    answers = [client.answer() for _ in range(401)]
    codes = {answer.entry: answer.code for answer in answers if answer.opcode == 1}
    (fence,) = (answer for answer in answers if answer.opcode == 2)
    assert [codes[entry] for entry in range(200)] == [EOK] * 200
    assert [codes[entry] for entry in range(200, 400)] == [EFENCED] * 200
    assert payload_of(fence.body) == b"199"
    assert payload_of(client.read(ledger, -1).body) == b"199"


def test_what_a_fence_did_not_see_was_not_acked(bookie: BookieProcess) -> None:
    """A writer and a recovering client race: every acked entry is at or below what the fence answered."""
    for _ in range(20):
        ledger = next(_ledgers)
        with RawClient(bookie.port) as writer, RawClient(bookie.port) as recoverer:
            assert writer.add(ledger, 0, b"0") == EOK
            writer.send(b"".join(add_frame(ledger, n, b"%d" % n) for n in range(1, 100)))
            recoverer.send(read_frame(ledger, -1, FENCE))
            last = int(payload_of(recoverer.answer().body))
            acked = [a.entry for a in (writer.answer() for _ in range(99)) if a.code == EOK]
            assert acked == list(range(1, last + 1))


# ---- versions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_old_versions_are_served_and_answered_in_kind(
    client: RawClient, ledger: int, version: int
) -> None:
    header = struct.pack(">I", 1) if version == 0 else struct.pack(">BBH", version, 1, 0)
    client.send(frame(header + master_key() + make_entry(ledger, 0, b"old")))
    assert client.frame() == header + struct.pack(">iqq", EOK, ledger, 0)
    header = struct.pack(">I", 2) if version == 0 else struct.pack(">BBH", version, 2, 0)
    client.send(frame(header + struct.pack(">qq", ledger, 0)))
    entry = make_entry(ledger, 0, b"old")
    assert client.frame() == header + struct.pack(">iqq", EOK, ledger, 0) + entry


def test_a_fence_without_a_key_in_version_1_is_unauthorized(client: RawClient, ledger: int) -> None:
    assert client.add(ledger, 0, b"x") == EOK
    client.send(frame(struct.pack(">BBHqq", 1, 2, FENCE, ledger, 0) + master_key()))
    assert client.answer().code == EUA
    assert client.add(ledger, 1, b"not fenced") == EOK


@pytest.mark.parametrize("version", [3, 4, 7])
def test_newer_versions_are_answered_with_bad_version(
    client: RawClient, ledger: int, version: int
) -> None:
    client.send(frame(add_body(make_entry(ledger, 0, b"x"), version)))
    assert client.frame() == struct.pack(">BBHiqq", version, 1, 0, EBADVERSION, ledger, 0)
    client.send(frame(struct.pack(">BBHqq", version, 2, 0, ledger, 3)))
    assert client.frame() == struct.pack(">BBHiqq", version, 2, 0, EBADVERSION, ledger, 3)
    client.send(frame(struct.pack(">BBHqqqiq", version, 7, 0, ledger, 3, 11, 1, 0)))
    expected = struct.pack(">BBHiqqq", version, 7, 0, EBADVERSION, ledger, 3, 11)
    assert client.frame() == expected
    assert client.read(ledger, 0).code == ENOLEDGER


def test_a_message_of_version_3_without_its_part_closes_only_its_connection(closes) -> None:
    closes(frame(b"\x0a\x06\x08\x03\x10\x01\x18\x01"))


# ---- authentication ---------------------------------------------------------------------------------


def test_auth_is_answered_with_auth_disabled(client: RawClient, ledger: int) -> None:
    message = b"\x0a\x04None\x12\x00"
    client.send(frame(struct.pack(">BBH", 2, 3, 0) + message))
    body = client.frame()
    assert body[:4] == struct.pack(">BBH", 2, 3, 0)
    assert body[4:] == b"\x0a\x12AuthDisabledPlugin\x12\x00"
    assert client.add(ledger, 0, b"after") == EOK


def test_auth_that_is_no_message_closes_only_its_connection(closes) -> None:
    closes(frame(struct.pack(">BBH", 2, 3, 0) + b"\xff\xff\xff"))


# ---- batch reads ------------------------------------------------------------------------------------


def batch_entries(body: bytes) -> tuple[int, list[bytes]]:
    """Request id and payloads of an answer to a batch read."""
    (request_id,) = struct.unpack_from(">q", body)
    at, found = 8, []
    while at < len(body):
        (size,) = struct.unpack_from(">I", body, at)
        found.append(payload_of(body[at + 4 : at + 4 + size]))
        at += 4 + size
    return request_id, found


def read_batch(client: RawClient, *arguments: int, flags: int = 0) -> tuple[int, list[bytes]]:
    client.send(batch_frame(*arguments, request_id=77, flags=flags))
    answer = client.answer()
    assert (answer.opcode, answer.ledger, answer.entry) == (7, arguments[0], arguments[1])
    request_id, entries = batch_entries(answer.body)
    assert request_id == 77
    return answer.code, entries


def test_batch_reads_keep_to_count_and_size(client: RawClient, ledger: int) -> None:
    for entry in range(8):
        assert client.add(ledger, entry, bytes([entry]) * 60) == EOK
    payloads = [bytes([entry]) * 60 for entry in range(8)]
    assert read_batch(client, ledger, 0, 3) == (EOK, payloads[:3])
    assert read_batch(client, ledger, 2, 0) == (EOK, payloads[2:])
    assert read_batch(client, ledger, 2, -7) == (EOK, payloads[2:])
    each = 4 + 40 + 60
    assert read_batch(client, ledger, 0, 0, 36 + 3 * each) == (EOK, payloads[:3])
    assert read_batch(client, ledger, 0, 0, 36 + 3 * each - 1) == (EOK, payloads[:2])
    for size in (0, -1, 1):
        assert read_batch(client, ledger, 0, 5, size) == (EOK, payloads[:1])
    assert read_batch(client, ledger, 7, 100) == (EOK, payloads[7:])
    assert read_batch(client, ledger, 8, 100) == (ENOENTRY, [])


def test_a_gap_ends_a_batch_read(client: RawClient, ledger: int) -> None:
    for entry in (0, 1, 3):
        assert client.add(ledger, entry, b"%d" % entry) == EOK
    assert read_batch(client, ledger, 0, 100) == (EOK, [b"0", b"1"])
    assert read_batch(client, ledger, 2, 100) == (ENOENTRY, [])


def test_a_fencing_batch_read_fences(client: RawClient, ledger: int) -> None:
    assert client.add(ledger, 0, b"x") == EOK
    assert read_batch(client, ledger, 0, 1, flags=FENCE) == (EOK, [b"x"])
    assert client.add(ledger, 1, b"late") == EFENCED


def test_a_batch_read_returns_the_first_entry_however_large(client: RawClient, ledger: int) -> None:
    large = b"L" * LARGEST_PAYLOAD
    assert client.add(ledger, 0, large) == EOK
    assert client.add(ledger, 1, b"small") == EOK
    assert read_batch(client, ledger, 0, 2) == (EOK, [large])


# ---- frames -----------------------------------------------------------------------------------------


def test_the_largest_frame_is_accepted_and_read_back(client: RawClient, ledger: int) -> None:
    payload = bytes(range(256)) * (LARGEST_PAYLOAD // 256 + 1)
    payload = payload[:LARGEST_PAYLOAD]
    data = add_frame(ledger, 0, payload)
    assert struct.unpack_from(">i", data) == (5_242_876,)
    client.send(data)
    assert client.answer().code == EOK
    answer = client.read(ledger, 0)
    assert (answer.code, payload_of(answer.body) == payload) == (EOK, True)


def test_one_byte_more_than_the_largest_frame_closes(closes) -> None:
    closes(struct.pack(">i", 5_242_877))


@pytest.mark.parametrize("length", [0, -1, -(1 << 31), (1 << 31) - 1])
def test_lengths_that_cannot_be_close(closes, length: int) -> None:
    closes(struct.pack(">i", length) + b"\x02\x01\x00\x00" * 8)


@pytest.mark.parametrize("opcode", [0, 4, 5, 6, 8, 255])
def test_unknown_opcodes_close(closes, opcode: int) -> None:
    closes(frame(struct.pack(">BBHqq", 2, opcode, 0, 1, 1) + bytes(40)))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 19])
def test_bodies_that_are_too_short_close(closes, size: int) -> None:
    closes(frame(struct.pack(">BBHqq", 2, 2, 0, 1, 1)[:size]))


@pytest.mark.parametrize("size", [0, 8, 15])
def test_an_entry_without_ids_closes(closes, size: int) -> None:
    closes(frame(add_body(make_entry(1, 0, b"")[:size])))


@pytest.mark.parametrize("size", [16, 23])
def test_an_entry_with_ids_only_is_a_bad_request(client: RawClient, ledger: int, size: int) -> None:
    client.send(frame(add_body(make_entry(ledger, 0, b"")[:size])))
    assert client.answer() == raw.Answer(1, EBADREQ, ledger, 0, b"")
    assert client.read(ledger, 0).code == ENOLEDGER


@pytest.mark.parametrize("size", [24, 31, 32])
def test_an_entry_with_a_lac_is_stored_as_it_is(client: RawClient, ledger: int, size: int) -> None:
    entry = make_entry(ledger, 0, b"")[:size]
    client.send(frame(add_body(entry)))
    assert client.answer().code == EOK
    assert client.read(ledger, 0) == raw.Answer(2, EOK, ledger, 0, entry)


def test_a_fence_without_its_key_closes_and_fences_nothing(
    closes, client: RawClient, ledger: int
) -> None:
    assert client.add(ledger, 0, b"x") == EOK
    closes(frame(struct.pack(">BBHqq", 2, 2, FENCE, ledger, 0) + bytes(19)))
    assert client.add(ledger, 1, b"y") == EOK


def test_bytes_behind_a_plain_read_are_ignored(client: RawClient, ledger: int) -> None:
    assert client.add(ledger, 0, b"x") == EOK
    client.send(frame(struct.pack(">BBHqq", 2, 2, 0, ledger, 0) + b"anything"))
    assert client.answer().code == EOK


# ---- how bytes arrive -------------------------------------------------------------------------------


def test_frames_that_come_byte_by_byte(client: RawClient, ledger: int) -> None:
    for data in add_frame(ledger, 0, b"slow"), read_frame(ledger, 0):
        for at in range(len(data)):
            client.send(data[at : at + 1])
        answer = client.answer()
        assert answer.code == EOK
    assert payload_of(answer.body) == b"slow"


def test_many_frames_in_one_segment(client: RawClient, ledger: int) -> None:
    client.send(b"".join(add_frame(ledger, entry, b"%d" % entry) for entry in range(5000)))
    assert [client.answer().code for _ in range(5000)] == [EOK] * 5000
    client.send(b"".join(read_frame(ledger, entry) for entry in range(5000)))
    found = {
        answer.entry: payload_of(answer.body) for answer in (client.answer() for _ in range(5000))
    }
    assert found == {entry: b"%d" % entry for entry in range(5000)}


def test_two_connections_get_their_own_answers(bookie: BookieProcess) -> None:
    one, two = next(_ledgers), next(_ledgers)
    with RawClient(bookie.port) as first, RawClient(bookie.port) as second:
        for entry in range(50):
            first.send(add_frame(one, entry, b"first"))
            second.send(add_frame(two, entry, b"second"))
            second.send(read_frame(two, entry))
        assert {first.answer().ledger for _ in range(50)} == {one}
        assert {second.answer().ledger for _ in range(100)} == {two}


def test_entries_of_5_mib_pipelined(client: RawClient, ledger: int) -> None:
    payloads = [bytes([65 + n]) * LARGEST_PAYLOAD for n in range(4)]
    sender = threading.Thread(
        target=client.send, args=(b"".join(map(add_frame, [ledger] * 4, range(4), payloads)),)
    )
    sender.start()
    assert [client.answer().code for _ in range(4)] == [EOK] * 4
    sender.join()
    client.send(b"".join(read_frame(ledger, entry) for entry in range(4)))
    for _ in range(4):
        answer = client.answer()
        assert payload_of(answer.body) == payloads[answer.entry]


def test_a_large_frame_behind_many_small_ones_in_pieces(client: RawClient, ledger: int) -> None:
    data = b"".join(add_frame(ledger, entry, b"s") for entry in range(2000))
    data += add_frame(ledger, 2000, b"L" * 3_000_000) + read_frame(ledger, 5)
    sender = threading.Thread(target=client.send, args=(data,))
    sender.start()
    codes = [client.answer().code for _ in range(2002)]
    sender.join()
    assert codes == [EOK] * 2002


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 27, 40, 63])
def test_half_a_frame_and_then_the_end(
    bookie: BookieProcess, client: RawClient, ledger: int, cut: int
) -> None:
    whole = add_frame(ledger, 0, b"whole")
    with RawClient(bookie.port) as short:
        short.send(whole + add_frame(ledger, 1, b"half")[:cut])
        assert short.answer().code == EOK
        if cut % 2:
            # An abrupt end, too: RST instead of FIN.
            linger = struct.pack("ii", 1, 0)
            short.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    assert payload_of(client.read(ledger, 0).body) == b"whole"
    assert client.read(ledger, 1).code == ENOENTRY


def test_frames_before_a_broken_one_are_carried_out(
    bookie: BookieProcess, client: RawClient, ledger: int
) -> None:
    with RawClient(bookie.port) as bad:
        bad.send(add_frame(ledger, 0, b"good") + struct.pack(">i", -1))
        with pytest.raises(EOFError):
            while True:
                bad.frame()
    answer = client.read(ledger, 0)
    # Its sender never got an answer, so either is right; no other code is.
    assert answer.code in (EOK, ENOLEDGER)


# ---- a client that never reads ----------------------------------------------------------------------


def memory(bookie: BookieProcess) -> int:
    """Bytes of anonymous memory of the front-end and the workers."""
    children = bookie.children()
    return sum(child.memory_full_info().uss for child in children)


def test_a_reader_that_takes_no_answers_holds_up_nobody_and_memory_is_bounded(
    bookie: BookieProcess, client: RawClient, ledger: int
) -> None:
    small = next(_ledgers)
    assert client.add(small, 0, b"small") == EOK
    assert client.add(ledger, 0, b"L" * LARGEST_PAYLOAD) == EOK
    with RawClient(bookie.port) as greedy:
        # Small answers first: the bookie learns to expect small ones.
        greedy.send(read_frame(small, 0) * 2000)
        for _ in range(2000):
            greedy.answer()
        before = memory(bookie)
        greedy.sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            while True:
                greedy.send(read_frame(ledger, 0) * 1000)
        for _ in range(20):
            assert client.add(small, 0, b"lives") == EOK
            assert payload_of(client.read(small, 0).body) == b"lives"
        assert memory(bookie) - before < 400 << 20
    wait_for(lambda: memory(bookie) - before < 300 << 20, "memory to be given back")
    assert client.read(ledger, 0).code == EOK


def test_a_writer_that_takes_no_answers_holds_up_nobody(
    bookie: BookieProcess, client: RawClient, ledger: int
) -> None:
    before = memory(bookie)
    with RawClient(bookie.port) as deaf:
        deaf.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sock.settimeout(0.5)
        frames = b"".join(add_frame(ledger, entry, b"x" * 10) for entry in range(20_000))
        with pytest.raises(TimeoutError):
            for _ in range(40):
                deaf.send(frames)
        assert client.add(next(_ledgers), 0, b"lives") == EOK
        assert memory(bookie) - before < 100 << 20


def test_a_length_that_nobody_has_looked_at_yet_takes_no_memory(
    bookie: BookieProcess, client: RawClient, ledger: int
) -> None:
    assert client.add(ledger, 0, b"L" * 1_000_000) == EOK
    before = memory(bookie)
    with RawClient(bookie.port) as greedy:
        greedy.send(read_frame(ledger, 0) * 2000 + struct.pack(">i", (1 << 31) - 1))
        assert client.add(ledger, 1, b"lives") == EOK
        assert client.read(ledger, 1).code == EOK
        peak = max(memory(bookie) for _ in range(10))
    assert peak - before < 400 << 20


def test_a_larger_frame_limit_is_served_to_its_last_byte(make_bookie: MakeBookie) -> None:
    eight_mib = 8 << 20
    bookie = make_bookie(
        disks=1, frame_bytes_max=eight_mib, connection_inflight_bytes_max=eight_mib
    ).start()
    payload = b"8" * (eight_mib - 4 - 24 - 40)
    with RawClient(bookie.port) as client:
        assert client.add(1, 0, payload) == EOK
        answer = client.read(1, 0)
        assert (answer.code, payload_of(answer.body) == payload) == (EOK, True)
        with RawClient(bookie.port) as bad, pytest.raises(EOFError):
            bad.send(struct.pack(">i", eight_mib - 3))
            bad.frame()
        assert client.read(1, 1).code == ENOENTRY


def test_nothing_of_all_this_killed_a_process(bookie: BookieProcess) -> None:
    status = bookie.status()
    assert {process["role"]: process["restarts"] for process in status["processes"]} == {
        "supervisor": 0,
        "frontend": 0,
        "worker": 0,
        "repair": 0,
    }
    assert all(psutil.pid_exists(process["pid"]) for process in status["processes"])
