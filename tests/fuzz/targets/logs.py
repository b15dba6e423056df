"""What lies on a disk: segments of logs, the records in them, index runs, and the small documents."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

from bkbox.base.ids import MAX_ID
from bkbox.base.limits import EXTENT_ENTRIES_MAX
from bkbox.errors import DamagedError, DiskError, FormatVersionError
from bkbox.native.checksum import crc32c
from bkbox.storage.disk import checkpoint, dirty_marker, identity
from bkbox.storage.log.records import GAP_BODY, OFFSET, Kind, LedgerRecord, Record, ledger_record
from bkbox.storage.log.scan import SegmentFindings, read_segment
from bkbox.storage.log.segment import (
    ENTRY_LOG_MAGIC,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    ScannedRecord,
    SegmentName,
    encode_segment_header,
    filler,
    put_record,
)
from tests.fuzz.kernels import INTERPRETED, alike
from tests.fuzz.memoryfiles import MemoryFiles
from tests.fuzz.target import KEY, Choices, Target
from tests.fuzz.targets.frames import exact

DISK = Path("/disk")
NAME = SegmentName(ENTRY_LOG_MAGIC, UUID(int=7), 3)
PATH = DISK / "0000000003.log"
KINDS = tuple(Kind)


# ---- segments, nearly right -------------------------------------------------------------------------


def entry(ledger: int, number: int, rest: bytes = b"") -> bytes:
    """Ids, LAC and length of an entry, and what follows."""
    return struct.pack(">qqqq", ledger, number, -1, len(rest)) + rest


def record_from(choices: Choices, offset: int) -> Record:
    """A record as they are written, or one of any kind with any body."""
    kind = choices.below(12)
    if kind < 6:
        return Record(Kind.ENTRY, entry(choices.id(), choices.id(), bytes(choices.below(64))))
    if kind == 6:
        state = LedgerRecord(KEY, bool(choices.below(2)), bool(choices.below(2)))
        return ledger_record(choices.id(), state)
    if kind == 7:
        return Record(
            Kind.SYNCED, OFFSET.pack(choices.one_of((offset, 64, 0, 1 << 63, offset - 1)))
        )
    if kind == 8:
        return Record(Kind.GAP, GAP_BODY.pack(64, offset, choices.below(2)))
    if kind == 9:
        return Record(Kind.LAC, struct.pack(">qq", choices.id(), choices.id()) + choices.some(8))
    return Record(choices.one_of(KINDS), choices.some(choices.below(40)))


def segment_from(choices: Choices, name: SegmentName, created_ms: int = 0) -> bytes:
    """A segment of a few records, with damage in it and filler behind it where the choices say so."""
    data = bytearray(encode_segment_header(name, created_ms))
    for _ in range(choices.below(20)):
        record = record_from(choices, len(data))
        at = len(data)
        data += bytes(RECORD_HEADER_BYTES + len(record.body))
        put_record(data, at, record, name.seed, name.segment, at)
    damage = choices.below(8)
    if damage == 1:
        del data[choices.number(2) % (len(data) + 1) :]
    elif damage in (2, 3):
        at = choices.number(2) % len(data)
        data[at : at + 4] = choices.some(4)
    elif damage == 4:
        at = choices.number(2) % len(data)
        data[at:at] = choices.some(20)
    if choices.below(4) == 1:
        start = len(data)
        data += filler(name.seed, start, start + choices.number(2) % 600)
    return bytes(data)


def check_segment(data: bytes) -> object:
    """Any bytes as a segment: a scan tells records from what is bad, the same with the kernel's help and without."""
    choices = Choices(data)
    content = segment_from(choices, NAME) if choices.below(2) else choices.rest()
    alone: list[tuple[int, int, bytes]] = []
    findings = _read(content, alone)
    if isinstance(findings, str):
        return findings
    alike(lambda kernel: _read_with(kernel, content, alone, findings))
    ends = sorted(
        [(a, b) for a, b in findings.bad] + [(at, at + 16 + len(body)) for at, _, body in alone]
    )
    reached = SEGMENT_HEADER_BYTES
    for start, end in ends:
        assert start == reached, "records and bad regions leave a hole or overlap"
        reached = end
    assert reached == max(findings.size, SEGMENT_HEADER_BYTES)
    for host_crash in (False, True):
        findings.classify(is_last=True, is_proven=host_crash, host_crash=host_crash)
    return (
        len(alone) > 0,
        len(findings.bad),
        findings.tail is None,
        findings.size < findings.file_bytes,
    )


def _read(content: bytes, found: list[tuple[int, int, bytes]]) -> SegmentFindings | str:
    def on_record(record: ScannedRecord) -> None:
        found.append((record.offset, int(record.kind), record.body))

    files = MemoryFiles({PATH: bytearray(content)})
    try:
        return read_segment(files, PATH, NAME, 0, on_record)
    except FormatVersionError:
        return "newer"
    except DamagedError as error:
        return str(error)[-30:]


def _read_with(
    kernel: SimpleNamespace,
    content: bytes,
    alone: list[tuple[int, int, bytes]],
    expected: SegmentFindings,
) -> object:
    """Read with a LogScan, in chunks: finds what was found alone."""
    recent, tally = kernel.memtable.Memtable(64), kernel.ledger_counts.LedgerCounts()
    scan = kernel.log_scan.LogScan(NAME.seed, NAME.segment)
    others: list[tuple[int, int, bytes]] = []

    def other(offset: int, kind: int, body: bytes) -> None:
        others.append((offset, kind, body))

    def take(chunk: bytes, base: int, at: int, note: object) -> tuple[int, int]:
        reached = scan.walk(chunk, base, at, recent, tally, other)
        assert reached >= at
        return reached, scan.needed_bytes

    def on_record(record: ScannedRecord) -> None:
        others.append((record.offset, int(record.kind), record.body))

    findings = read_segment(MemoryFiles({PATH: bytearray(content)}), PATH, NAME, 0, on_record, take)
    assert (findings.size, findings.bad, findings.tail) == (
        expected.size,
        expected.bad,
        expected.tail,
    )
    latest: dict[tuple[int, int], tuple[int, int]] = {}
    rest = []
    for offset, kind, body in alone:
        ids = struct.unpack_from(">qq", body) if len(body) >= 16 else (-1, -1)
        if kind == Kind.ENTRY and min(ids) >= 0:
            latest[ids] = offset, len(body)
        elif kind != Kind.SYNCED or len(body) != OFFSET.size:
            rest.append((offset, kind, body))
    assert others == rest
    place = kernel.memtable.EntryLocation()
    for ids, where in latest.items():
        assert recent.find(*ids, place)
        assert (place.offset, place.length) == where
    assert sum(count for _, count, _ in tally.items()) == scan.entries
    return scan.entries, scan.records, scan.bound, list(tally.items())


def _segments() -> list[bytes]:
    made = [b"\0" + encode_segment_header(NAME, 5), b"\0", b""]
    for kind in range(12):
        made.append(bytes((1, 3, kind, 1, 0, 9, 0, 1, 0, 9, 0, 2, 0, 0)))
    made.append(b"\1\x0a" + bytes(range(60)))
    for damage in range(5):
        made.append(bytes((1, 3, *(0, 1, 2, 9) * 3, damage, 0, 90, 1, 2, 3, 4, 1, 1, 99)))
    content = bytearray(encode_segment_header(NAME, 5))
    for number in range(3):
        at = len(content)
        content += bytes(RECORD_HEADER_BYTES + 40)
        put_record(content, at, Record(Kind.ENTRY, entry(1, number, b"8 bytes.")), NAME.seed, 3, at)
    made += [b"\0" + bytes(content), b"\0" + bytes(content[:-9])]
    return made


# ---- runs of the index ------------------------------------------------------------------------------


def check_run(data: bytes) -> object:
    """Any bytes as the value of an index key: refused as damaged, or what it says is within bounds and consistent."""
    choices = Choices(data)
    first, encoded = choices.id(), choices.below(2)
    if encoded:
        return alike(lambda kernel: _encoded(kernel, Choices(data)))
    value = choices.rest()
    return alike(lambda kernel: _decoded(kernel, first, value))


def _decoded(kernel: SimpleNamespace, first: int, value: bytes) -> object:
    run = kernel.extents.Extent(1, first, value)
    rows = run.entries()
    assert len(rows) == run.count <= 65_535
    near = [entry_id for entry_id, *_ in rows[:5] + rows[-3:]]
    asked = [run.index_of(number) for number in (*near, first - 1, min(run.last + 1, MAX_ID))]
    assert all(-1 <= index < run.count for index in asked)
    places = [(run.offset_of(index), run.length_of(index)) for index in asked if index >= 0]
    return run.last, run.segment, rows[:50], asked, places, run.ranges()[:50]


def _encoded(kernel: SimpleNamespace, choices: Choices) -> object:
    first, offset, length = choices.id() >> 1, 64, 40
    choices.below(2)
    encoder = kernel.extents.ExtentEncoder()
    rows, found = [], []

    def end() -> None:
        run = encoder.end(1)
        found.extend((number, run.segment, at, size) for number, at, size in run.entries())
        for index, (number, *_) in enumerate(run.entries()):
            assert run.index_of(number) == index

    number = first
    while choices.more and len(rows) < 50:
        step = choices.below(8)
        number += 1 if step < 6 else (1 << 32 if step == 6 else choices.below(9) + 1)
        length = 40 if choices.below(4) else choices.below(200)
        offset += 56 if choices.below(4) else choices.number(2)
        rows.append((number, 1 + choices.below(64) // 63, offset, length))
        if not encoder.add(*rows[-1]):
            end()
            assert encoder.add(*rows[-1])
    if encoder.count:
        end()
    assert found == rows
    return len(rows)


def _runs() -> list[bytes]:
    made = [b"\0\1" + bytes(range(60))]
    for shape in ((40, 1, 0), (40, 2, 0), (0, 1, 100), (0, 3, 9)):
        length, step, gap = shape
        encoder = INTERPRETED.extents.ExtentEncoder()
        at = 64
        for number in range(5):
            size = length or 20 + number
            encoder.add(number * step, 3, at, size)
            at += 16 + size + gap * number
        value = encoder.end(1).value
        made += [bytes((kind, 0)) + value for kind in (0, 1, 8, 9)]
    made.append(b"\0\0" + struct.pack(">BBHIQI", 2, 0, EXTENT_ENTRIES_MAX, 1, 64, 40))
    return made


# ---- records on their way to an answer --------------------------------------------------------------


def check_fetch(data: bytes) -> object:
    """An index that points anywhere into any bytes: an entry is served only where its record verifies."""
    return alike(lambda kernel: _fetched(kernel, data))


class _Bytes:
    """A log of one segment, of which a part is in memory."""

    following = True

    def __init__(self, data: bytes, cached: int) -> None:
        self._data, self._cached = data, cached

    def seed_of(self, segment: int) -> int:
        return NAME.seed

    def read_cached(self, segment: int, offset: int, room: memoryview) -> int:
        return self._copy(self._data[: self._cached], offset, room)

    def read_into(self, segment: int, offset: int, room: memoryview) -> int:
        return self._copy(self._data, offset, room)

    def _copy(self, data: bytes, offset: int, room: memoryview) -> int:
        found = data[offset : offset + len(room)]
        room[: len(found)] = found
        return len(found)

    def missed(self, segment: int, offset: int, size: int) -> None:
        return

    def read(self, *_told: object) -> None:
        return


def _fetched(kernel: SimpleNamespace, data: bytes) -> object:
    choices = Choices(data)
    records: list[tuple[int, int, int, int]] = []
    log = bytearray(SEGMENT_HEADER_BYTES)
    for _ in range(choices.below(12)):
        body = entry(choices.below(3), choices.below(5), bytes(choices.below(30)))
        at = len(log)
        log += bytes(RECORD_HEADER_BYTES + len(body))
        put_record(log, at, Record(Kind.ENTRY, body), NAME.seed, 3, at)
        records.append((*struct.unpack_from(">qq", body), at, len(body)))
    right = {
        (one, number): bytes(log[at + 16 : at + 16 + size]) for one, number, at, size in records
    }
    source = _Bytes(bytes(log), choices.number(2))
    fetch = kernel.entry_reader.Fetch(source, source)
    place = kernel.memtable.EntryLocation()
    outcomes = []
    for _ in range(choices.below(4) + 1):
        room = exact(bytes(4096))
        wanted = []
        to = 0
        for _ in range(choices.below(12) + 1):
            ledger, number, at, size = (
                choices.one_of(records) if records else (choices.below(3), 0, 64, 32)
            )
            twist = choices.below(16)
            if twist == 1:
                at += choices.below(40) - 20
            elif twist == 2:
                size += choices.below(40) - 20
            elif twist == 3:
                number += 1
            elif twist == 4:
                at = choices.id()
            place.segment, place.offset, place.length = 3 + (twist == 5), at, max(size, 0)
            if to + place.length > len(room):
                break
            fetch.add(ledger, number, place, to)
            wanted.append((ledger, number, to, place.length))
            to += place.length
        good = fetch.fetch(room) == 1
        assert fetch.count == 0
        if good:
            for ledger, number, to, size in wanted:
                body = bytes(room[to : to + size])
                assert struct.unpack_from(">qq", body) == (ledger, number)
                assert (ledger, number) in right
        outcomes.append(good)
    return outcomes, fetch.fetched


def _fetches() -> list[bytes]:
    made = [b"", bytes((3, 1, 0, 5, 1, 1, 5, 1, 2, 5, 255, 255, 0, 2, 0, 0, 1, 0, 2, 0))]
    for twist in range(6):
        made.append(bytes((4, *(1, 2, 7) * 4, 0, 200, 1, 3, 0, 0, 1, twist, 3, 2, 0, 3, 0, 9, 9)))
    return made


# ---- the small documents ----------------------------------------------------------------------------


def check_document(data: bytes) -> object:
    """Any bytes as a checkpoint, an identity or a dirty marker, with a right checksum or not."""
    choices = Choices(data)
    kind, sealed = choices.below(3), choices.below(2)
    content = choices.rest()
    if sealed:
        content = content.partition(b"\n")[0] + b"\n"
        content += b"%08x\n" % crc32c(content)
    name = (checkpoint.CHECKPOINT_NAME, identity.DISK_NAME, dirty_marker.MARKER_NAME)[kind]
    files = MemoryFiles({DISK / name: bytearray(content)})
    if kind == 2:
        found = dirty_marker.read_marker(files, DISK)
        assert found is not None
        run = dirty_marker.Incarnation("boot", dirty_marker.AckAfter.SYNC, "run")
        assert dirty_marker.begin_run(files, DISK, run) == found
        assert dirty_marker.read_marker(files, DISK).runs[-1:] == (run,)  # type: ignore[union-attr]
        return len(found.runs), len(found.failures), found.is_host_crash("boot")
    try:
        if kind == 0:
            point = checkpoint.read_checkpoint(files, DISK)
            assert point is not None
            checkpoint.write_checkpoint(files, DISK, point)
            assert checkpoint.read_checkpoint(files, DISK) == point
            return type(point), point.journal is None
        mine = identity.read_identity(files, DISK)
        assert mine is not None
        identity.write_identity(files, DISK, mine)
        assert identity.read_identity(files, DISK) == mine
        return type(mine)
    except DiskError as error:
        return kind, str(error)[-24:]


def _documents() -> list[bytes]:
    files = MemoryFiles()
    checkpoint.write_checkpoint(files, DISK, checkpoint.Checkpoint(3, 4, 500, 64, None, held=True))
    identity.write_identity(files, DISK, identity.DiskIdentity(UUID(int=7), "b:1", "i"))
    dirty_marker.begin_run(
        files, DISK, dirty_marker.Incarnation("boot", dirty_marker.AckAfter.WRITE, "r")
    )
    dirty_marker.record_failure(files, DISK, "sync failed")
    names = (checkpoint.CHECKPOINT_NAME, identity.DISK_NAME, dirty_marker.MARKER_NAME)
    made = []
    for kind, name in enumerate(names):
        data = bytes(files.files[DISK / name])
        made += [bytes((kind, 0)) + data, bytes((kind, 1)) + data.partition(b"\n")[0]]
        made += [
            bytes((kind, 1)) + each for each in (b"[1]", b"{}", b'{"format": 1}', b'{"format": 9}')
        ]
        made.append(bytes((kind, 1)) + b'{"format": 1, "x": ' + b"[" * 2000)
        made.append(bytes((kind, 1)) + b'{"format": 1' + b"0" * 5000 + b"}")
        made.append(bytes((kind, 1)) + b'{"format": Infinity, "number": NaN}')
    return made


TARGETS = (
    Target(
        "segments",
        "segments of a log, scanned alone and with the kernel",
        _segments,
        check_segment,
        0.3,
    ),
    Target("runs", "values of the index, decoded and encoded", _runs, check_run, 0.5),
    Target("fetch", "records on their way to answers", _fetches, check_fetch, 0.3),
    Target("documents", "checkpoint, identity and dirty marker", _documents, check_document, 0.5),
)
