"""Plain reads and batch reads against a real disk store: what they say is what reads one by one say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.bookie.lac import KnownLacs
from bkbox.bookie.ledgers import Ledgers
from bkbox.bookie.reading import Reader
from bkbox.bookie.response_writer import ResponseWriter
from bkbox.ipc.frame_spans import segments
from bkbox.ipc.slots import SLOT_BYTES
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.log.records import LedgerRecord, entry_record, ledger_record
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.v3_format import Operation
from tests.bookie.bench import new_disk, open_store
from tests.harness import raw

LARGE = 5 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    opened = open_store(new_disk(tmp_path))
    yield opened
    opened.abandon()


def reader_of(store: DiskStore) -> Reader:
    return Reader(store, Ledgers(store), KnownLacs(store), lambda: 0.0)


class Answers:
    """Slots, and the frames that are put into them."""

    def __init__(self) -> None:
        self.found: list[bytes] = []
        self.slot = memoryview(bytearray(SLOT_BYTES))
        self.writer = ResponseWriter(self.more)

    def more(self, used: int) -> memoryview:
        for _connection, count, data in segments(self.slot, used):
            at = 0
            for _ in range(count):
                end = at + 4 + int.from_bytes(data[at : at + 4], "big")
                self.found.append(bytes(data[at:end]))
                at = end
            assert at == len(data)
        return self.slot

    def frames(self) -> list[bytes]:
        self.more(self.writer.finish())
        return self.found


def plain(reader: Reader, version: int, *ids: tuple[int, int]) -> list[bytes]:
    for ledger, entry in ids:
        if version == 2:
            reader.fast_reads.add_v2(1, 2, ledger, entry)
        else:
            reader.fast_reads.add_v3(1, 9, ledger, entry)
    answers = Answers()
    reader.fast_reads.serve(answers.writer)
    return answers.frames()


def one_by_one(reader: Reader, version: int, ledger: int, entry: int) -> bytes:
    if version == 2:
        return reader.response(v2.ReadRequest(2, 0, ledger, entry, None), Code.EOK)
    header = v3.Header(Operation.READ_ENTRY, 9)
    return reader.response(v3.ReadRequest(header, ledger, entry), Code.EOK)


def write(store: DiskStore, ledger: int, *payloads: bytes, first: int = 0) -> None:
    """A ledger with these entries."""
    state = ledger_record(ledger, LedgerRecord(raw.master_key()))
    entries = [
        entry_record(raw.make_entry(ledger, entry, payload))
        for entry, payload in enumerate(payloads, first)
    ]
    store.write([state, *entries])


def put_into_limbo(store: DiskStore, ledger: int) -> None:
    store.write([ledger_record(ledger, LedgerRecord(None, fenced=True, limbo=True))])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("checkpoints", [False, True])
def test_plain_reads_say_what_reads_one_by_one_say(
    store: DiskStore, version: int, checkpoints: bool
) -> None:
    write(store, 1, *(b"%d" % entry * 20 for entry in range(40)))
    write(store, 2, b"another", first=5)
    write(store, 3, b"limbo")
    put_into_limbo(store, 3)
    put_into_limbo(store, 4)
    if checkpoints:
        store.checkpoint()
    ids = [(1, 39), (1, 0), (1, 40), (2, 5), (2, 0), (3, 0), (3, 1), (4, 0), (9, 9), (1, 7)]
    reader = reader_of(store)
    assert plain(reader, version, *ids) == [one_by_one(reader, version, *pair) for pair in ids]
    assert reader.fast_reads.served == 5
    assert reader.reads == 2 * len(ids)


def test_in_limbo_an_entry_that_is_there_is_served_without_a_lac(store: DiskStore) -> None:
    write(store, 1, b"here")
    put_into_limbo(store, 1)
    reader = reader_of(store)
    [frame] = plain(reader, 3, (1, 0))
    answer = v3.decode_response(frame[4:])
    assert isinstance(answer, v3.ReadResponse)
    assert (answer.code, answer.max_lac) == (Code.EOK, None)
    [frame] = plain(reader, 3, (1, 1))
    answer = v3.decode_response(frame[4:])
    assert isinstance(answer, v3.ReadResponse)
    assert answer.code is Code.EUNKNOWNLEDGERSTATE


def test_negative_ids_are_bad_requests(store: DiskStore) -> None:
    reader = reader_of(store)
    codes = [int.from_bytes(frame[8:12], "big") for frame in plain(reader, 2, (-1, 0), (1, -2))]
    assert codes == [Code.EBADREQ.v2] * 2


def test_an_entry_that_cannot_be_read_is_an_io_error_and_its_neighbours_are_not(
    tmp_path: Path, store: DiskStore
) -> None:
    payloads = [b"good", b"rotten" * 10, b"fine"]
    write(store, 1, *payloads)
    reader = reader_of(store)
    [segment] = (tmp_path / "disk" / "entrylog").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[data.rindex(b"rotten")] ^= 1
    segment.write_bytes(data)
    codes = [
        int.from_bytes(frame[8:12], "big")
        for frame in plain(reader, 2, (1, 0), (1, 1), (1, 2), (1, 3))
    ]
    assert codes == [raw.EOK, raw.EIO, raw.EOK, raw.ENOENTRY]
    batch = v2.BatchReadRequest(2, 0, 1, 0, 77, 0, LARGE, None)
    assert batch_read(reader, batch) == reader.response(batch, Code.EOK)


def batch_read(reader: Reader, request: v2.BatchReadRequest, code: Code = Code.EOK) -> bytes:
    answers = Answers()
    reader.put_response(answers.writer, 1, request, code)
    [frame] = answers.frames()
    return frame


@pytest.mark.parametrize(
    ("version", "ledger", "first", "count", "size"),
    [
        (2, 1, 0, 5, LARGE),
        (2, 1, 3, 0, LARGE),
        (2, 1, 3, 0, 300),
        (2, 1, 3, 0, 1),
        (2, 1, -1, 3, LARGE),
        (2, 1, 60, 3, LARGE),
        (2, 7, 0, 3, LARGE),
        (2, 4, 0, 3, LARGE),
        (2, 1, 0, 3, -5),
        (1, 1, 0, 5, LARGE),
        (0, 1, 0, 5, LARGE),
    ],
)
def test_batch_reads_are_answered_in_place_as_they_are_one_by_one(
    store: DiskStore, version: int, ledger: int, first: int, count: int, size: int
) -> None:
    write(store, 1, *(b"%d" % entry * 20 for entry in range(40)))
    put_into_limbo(store, 4)
    reader = reader_of(store)
    request = v2.BatchReadRequest(version, 0, ledger, first, 77, count, size, None)
    assert batch_read(reader, request) == reader.response(request, Code.EOK)


def test_a_refused_read_is_answered_with_its_code(store: DiskStore) -> None:
    write(store, 1, b"here")
    reader = reader_of(store)
    request = v2.BatchReadRequest(2, 0, 1, 0, 77, 1, LARGE, None)
    frame = batch_read(reader, request, Code.EUA)
    assert frame == reader.response(request, Code.EUA)
    assert int.from_bytes(frame[8:12], "big") == Code.EUA.v2


def test_reads_of_segments_old_and_new(tmp_path: Path, store: DiskStore) -> None:
    payload = b"y" * 50_000
    for first in range(0, 60, 10):
        write(store, 1, *[payload] * 10, first=first)
    store.checkpoint()
    write(store, 1, *[payload] * 10, first=60)
    reader = reader_of(store)
    assert len(list((tmp_path / "disk" / "entrylog").glob("*.log"))) > 2
    frames = plain(reader, 2, *((1, entry) for entry in range(70)))
    assert [raw.payload_of(frame[28:]) for frame in frames] == [payload] * 70
    assert reader.fast_reads.served == 70
