"""A whole disk: what a start makes of any logs, and what a bookie answers to any requests."""

from __future__ import annotations

import struct
from collections.abc import Set
from pathlib import Path
from uuid import UUID

from bkbox.base.limits import LONG_POLL_MS_MAX
from bkbox.bookie.bookie import Bookie
from bkbox.bookie.response_writer import ResponseWriter
from bkbox.errors import BootError, DiskError
from bkbox.ipc.frame_spans import FrameSpan, segments
from bkbox.storage.disk.checkpoint import Checkpoint, write_checkpoint
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.format_disk import format_disk
from bkbox.storage.disk.identity import DiskIdentity
from bkbox.storage.index.ordered_store import MemoryStore
from bkbox.storage.log.journal import Journal
from bkbox.storage.log.records import AckAfter, Kind
from bkbox.storage.log.scan import read_segment
from bkbox.storage.log.segment import (
    ENTRY_LOG_DIR,
    ENTRY_LOG_MAGIC,
    JOURNAL_MAGIC,
    ScannedRecord,
    SegmentName,
    segment_file_name,
)
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.frames import bodies
from tests.bookie.bench import Clock, answer_group, bookie_of
from tests.fuzz.kernels import IN_USE
from tests.fuzz.memoryfiles import MemoryFiles
from tests.fuzz.target import Choices, Target
from tests.fuzz.targets.frontend import streams, whole
from tests.fuzz.targets.logs import segment_from
from tests.fuzz.targets.requests import frames_from
from tests.fuzz.targets.requests import seeds as request_seeds

DISK = Path("/data/disk")
JOURNAL = Path("/data/journal")
UUID_OF_DISK = UUID(int=7)
SEGMENT_BYTES = 1 << 20

_SLOTS = [memoryview(bytearray(1 << 20)) for _ in range(8)]
"""For answers, used again and again: to clear them takes longer than all else."""

LEDGERS = frozenset((*range(32), *Choices.IDS))
"""All that ``Choices.id`` may choose."""

Entries = dict[tuple[int, int], bytes]


def _formatted() -> MemoryFiles:
    files = MemoryFiles()
    identity = DiskIdentity(UUID_OF_DISK, "b:1", "i")
    format_disk(files, DISK, identity, create_index=lambda *_: None)
    return files


_FORMATTED = _formatted()


def new_disk() -> MemoryFiles:
    return copied(_FORMATTED)


def copied(files: MemoryFiles) -> MemoryFiles:
    return MemoryFiles({path: bytearray(each) for path, each in files.files.items()})


def opened(
    files: MemoryFiles, index: MemoryStore, ack_after: AckAfter = AckAfter.SYNC
) -> DiskStore:
    return DiskStore.open(
        files,
        DISK,
        ack_after=ack_after,
        journal_dir=JOURNAL,
        segment_bytes_max=SEGMENT_BYTES,
        checkpoint_bytes=SEGMENT_BYTES,
        now_ms=lambda: 0,
        open_index=lambda *_: index,
    )


# ---- a start ----------------------------------------------------------------------------------------


def check_replay(data: bytes) -> object:
    """A disk with any few segments: it starts with exactly the entries that a plain reading finds, again and again,
    or says what is wrong with it."""
    choices = Choices(data)
    files = new_disk()
    host_crash = bool(choices.below(2))
    begun = choices.below(4) == 1
    count = choices.below(4)
    for number in range(1, count + 1):
        if choices.below(8) != 7:
            name = SegmentName(ENTRY_LOG_MAGIC, UUID_OF_DISK, number)
            path = DISK / ENTRY_LOG_DIR / segment_file_name(number)
            files.files[path] = bytearray(segment_from(choices, name))
    if choices.below(4) == 1:
        name = SegmentName(JOURNAL_MAGIC, UUID_OF_DISK, 1)
        path = JOURNAL / str(UUID_OF_DISK) / segment_file_name(1)
        files.files[path] = bytearray(segment_from(choices, name))
    if begun:
        journal = 1 if choices.below(2) else None
        point = Checkpoint(1, choices.below(4), choices.number(2), choices.number(1), journal)
        write_checkpoint(files, DISK, point)
    plain = None if begun or host_crash else _plainly(files)
    index = MemoryStore()
    store = opened(files, index)
    try:
        report = store.replay(host_crash)
    except (DiskError, BootError) as error:
        store.abandon()
        return type(error), str(error)[-24:]
    ledgers = LEDGERS | {ledger for ledger, _ in plain or ()}
    found = _entries(store, ledgers)
    assert plain is None or found == plain
    store.abandon()
    again = opened(files, index)
    again.replay(host_crash=False)
    assert _entries(again, ledgers) == found, "a second start finds something else"
    again.close()
    last = opened(files, index)
    last.replay(host_crash=False)
    assert _entries(last, ledgers) == found, "a start after a clean stop finds something else"
    last.abandon()
    return host_crash, report.trusted, bool(report.damaged), report.entries > 0


def _plainly(files: MemoryFiles) -> Entries | None:
    """The entries of all segments, the last of each id, without those of forgotten ledgers."""
    found: Entries = {}

    def on_record(record: ScannedRecord) -> None:
        if record.kind is Kind.ENTRY:
            found[struct.unpack_from(">qq", record.body)] = record.body  # type: ignore[index]
        elif record.kind is Kind.FORGET:
            (gone,) = struct.unpack(">q", record.body)
            for ids in [ids for ids in found if ids[0] == gone]:
                del found[ids]

    for path in sorted(path for path in files.files if path.parent.name == ENTRY_LOG_DIR):
        name = SegmentName(ENTRY_LOG_MAGIC, UUID_OF_DISK, int(path.stem))
        try:
            read_segment(files, path, name, 0, on_record)
        except (DiskError, struct.error):
            return None
    return found


def _entries(store: DiskStore, ledgers: Set[int] = LEDGERS) -> Entries:
    """All of these that can be read; the rest is damaged, and says so."""
    found: Entries = {}
    for ledger in ledgers:
        for first, last in store.entries(ledger):
            assert last - first < 10_000
            for number in range(first, last + 1):
                try:
                    body = store.read_entry(ledger, number)
                except DiskError:
                    continue
                assert body is not None
                found[ledger, number] = body
        store.ledger_state(ledger)
        store.explicit_lac(ledger)
    assert len(list(store.ledgers())) < 1000
    return found


def check_journal(data: bytes) -> object:
    """Any few journal segments: their records are handed on, and what is missing is said."""
    choices = Choices(data)
    files = MemoryFiles()
    for number in range(1, choices.below(4) + 1):
        if choices.below(8) != 7:
            name = SegmentName(JOURNAL_MAGIC, UUID_OF_DISK, number)
            path = JOURNAL / str(UUID_OF_DISK) / segment_file_name(number)
            files.files[path] = bytearray(segment_from(choices, name))
    journal = Journal(files, JOURNAL, UUID_OF_DISK, SEGMENT_BYTES, SEGMENT_BYTES, lambda: 0)
    records: list[ScannedRecord] = []
    try:
        lost = journal.replay(1, records.append)
    except DiskError as error:
        return str(error)[-24:]
    journal.start(1)
    assert journal.segment == max(journal.segments())
    journal.close()
    return bool(records), len(lost)


def _logs() -> list[bytes]:
    made = []
    for head in ((0, 0, 1), (1, 0, 2), (0, 0, 3), (1, 1, 1), (0, 1, 2)):
        for body in range(12):
            segment = (0, 4, *(0, 1, 5, 9), body, 1, 3, 9, *(0, 1, 6, 9), *(7, 1), 0, 0)
            made.append(bytes((*head, *segment * 3, 1)))
    return made


# ---- a bookie ---------------------------------------------------------------------------------------


def check_bookie(data: bytes) -> object:
    """What passes the front-end is carried out: one answer for each request, and what was acknowledged is there, also
    for the next process. Inputs of odd length are carried out request by request."""
    choices = Choices(data)
    sent = frames_from(choices) if choices.below(2) else choices.rest()
    requests = whole(IN_USE, sent).requests() if sent else b""
    if not requests:
        return None
    files, index, clock = new_disk(), MemoryStore(), Clock()
    store = opened(files, index)
    store.replay(host_crash=False)
    bookie = bookie_of(store, clock)
    connection, size, count = struct.unpack_from(">III", requests)
    assert len(requests) == 12 + size
    answers = []
    for segment in _groups(requests, (connection, count, 12, 12 + size), apart=len(data) % 2 == 1):
        _SLOTS[0][: 64 * count] = b"\xaa" * (64 * count)  # so that what is not written shows
        answers += carried_out(bookie, requests, segment)
    while bookie.has_polls:
        answers += [frame[4:] for _, frames in bookie.pop_ready_polls() for frame in frames]
        clock.advance(LONG_POLL_MS_MAX)
    assert len(answers) == count
    added, codes = _acknowledged(answers)
    sent = _sent(bytes(requests[12:]))
    entries: Entries = {}
    for ids in added:
        body = _read(bookie, ids)
        assert body in sent[ids]
        entries[ids] = body
    store.abandon()
    again = opened(files, index)
    again.replay(host_crash=False)
    for ids, body in entries.items():
        assert again.read_entry(*ids) == body
        state = again.ledger_state(ids[0])
        assert state is not None
    again.abandon()
    return tuple(sorted(codes, key=repr))


def _groups(area: memoryview, segment: FrameSpan, *, apart: bool) -> list[FrameSpan]:
    """The frames as one group, or each as a group of its own, which sees what those before it have done."""
    if not apart:
        return [segment]
    connection, _, at, end = segment
    found = []
    while at < end:
        after = at + 4 + int.from_bytes(area[at : at + 4])
        found.append((connection, 1, at, after))
        at = after
    return found


def carried_out(bookie: Bookie, area: memoryview, segment: FrameSpan) -> list[bytes]:
    """The bodies of the answers to one group."""
    taken: list[tuple[memoryview, int]] = []

    def more(used: int) -> memoryview:
        if taken:
            taken[-1] = taken[-1][0], used
        taken.append((_SLOTS[len(taken)], 0))
        return taken[-1][0]

    writer = ResponseWriter(more)
    answer_group(bookie, area, [segment], writer)
    if taken:
        taken[-1] = taken[-1][0], writer.finish()
    return [
        bytes(body)
        for slot, used in taken
        for _, _, frames in segments(slot, used)
        for body in bodies(frames, len(frames))
    ]


def _acknowledged(answers: list[bytes]) -> tuple[list[tuple[int, int]], set[object]]:
    added: list[tuple[int, int]] = []
    codes: set[object] = set()
    for body in answers:
        answer = (v2 if body[0] < v3.FIRST_BYTE_MIN else v3).decode_response(body)
        codes.add((type(answer).__name__, getattr(answer, "code", None)))
        if isinstance(answer, v2.AddResponse | v3.AddResponse) and answer.code is Code.EOK:
            added.append((answer.ledger_id, answer.entry_id))
    return added, codes


def _sent(frames: bytes) -> dict[tuple[int, int], list[bytes]]:
    sent: dict[tuple[int, int], list[bytes]] = {}
    for body in bodies(frames, len(frames) + 5):
        request = (v2 if body[0] < v3.FIRST_BYTE_MIN else v3).decode_request(body)
        if isinstance(request, v2.AddRequest | v3.AddRequest):
            ids = request.ledger_id, request.entry_id
            sent.setdefault(ids, []).append(bytes(request.entry))
    return sent


def _read(bookie: Bookie, ids: tuple[int, int]) -> bytes:
    code, body = bookie.reader.entry(*ids)
    assert code is Code.EOK, f"{ids} was acknowledged, and is {code}"
    assert body is not None
    return body


def _requests() -> list[bytes]:
    return [b"\0" + data for data in streams()] + request_seeds()


TARGETS = (
    Target("replay", "starts of a disk with any logs", _logs, check_replay, 0.02),
    Target("journals", "replays of any journal", _logs, check_journal, 0.1),
    Target("bookie", "requests through front-end and bookie", _requests, check_bookie, 0.02),
)
