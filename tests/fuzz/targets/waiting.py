"""Answers that have to wait: reads of what is not in memory, and what is kept for a client that does not take it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

from bkbox.bookie.bookie import Bookie
from bkbox.bookie.response_writer import ResponseWriter
from bkbox.errors import EncodingError, FrameError
from bkbox.frontend.overload.overload_responses import without_entries
from bkbox.ipc.frame_spans import segments
from bkbox.storage.files import AppendFile, ReadFile
from bkbox.storage.index.ordered_store import MemoryStore
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.frames import bodies
from bkbox.wire.v3_format import Operation
from tests.bookie.bench import bookie_of
from tests.fuzz.memoryfiles import MemoryFiles
from tests.fuzz.target import KEY, Choices, Target
from tests.fuzz.targets.disks import copied, new_disk, opened
from tests.fuzz.targets.logs import entry

# ---- reads that wait for the disk -------------------------------------------------------------------

_PAGE = 64
_LEDGERS, _ENTRIES = (1, 2, 3), 8
_SLOTS = [memoryview(bytearray(1 << 20)) for _ in range(3)]


class _ColdFile:
    """A file of which some pages are not in memory, each until it was read or asked for."""

    def __init__(self, file: ReadFile, cold: set[int]) -> None:
        self._file = file
        self._cold = cold

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        self._warm(offset, len(buffer))
        return self._file.read_into(offset, buffer)

    def read_cached(self, offset: int, buffer: memoryview) -> int:
        for page in range(offset // _PAGE, (offset + len(buffer) - 1) // _PAGE + 1):
            if page in self._cold:
                return max(0, min(page * _PAGE - offset, self._file.read_cached(offset, buffer)))
        return self._file.read_cached(offset, buffer)

    def _warm(self, offset: int, length: int) -> None:
        self._cold.difference_update(range(offset // _PAGE, (offset + length) // _PAGE + 1))


class _ColdFiles(MemoryFiles):
    """``cold``: pages of every file that are not in memory."""

    def __init__(self, files: MemoryFiles, cold: Sequence[int]) -> None:
        super().__init__(files.files)
        self._cold = set(cold)

    def open_read(self, path: Path) -> ReadFile:
        return _ColdFile(super().open_read(path), set(self._cold))  # type: ignore[return-value]

    def open_append(self, path: Path) -> AppendFile:
        return _ColdFile(super().open_append(path), set(self._cold))  # type: ignore[arg-type, return-value]


def check_cold(data: bytes) -> object:
    """Reads of a disk of which any part is not in memory are answered as if all were: each once, alike, none denied."""
    choices = Choices(data)
    files, index = copied(_FILLED[0]), deepcopy(_FILLED[1])
    damaged = choices.below(8)
    if damaged == 7:
        (log,) = (path for path in files.files if path.parent.name == "entrylog")
        files.files[log][64 + choices.number(2) % (len(files.files[log]) - 64)] ^= 1
    cold = [page for page in range(64) if choices.below(2)]
    requests = [_read(choices) for _ in range(1 + choices.below(12))]
    warm_answers, _late = _served(MemoryFiles(files.files), index, requests)
    cold_answers, deferred = _served(_ColdFiles(files, cold), index, requests)
    assert sorted(warm_answers) == sorted(cold_answers)
    assert len(cold_answers) == len(requests)
    return deferred, damaged == 7, len(requests)


def _filled() -> tuple[MemoryFiles, MemoryStore]:
    """A disk that was stopped, with a few entries of a few ledgers."""
    files, index = new_disk(), MemoryStore()
    store = opened(files, index)
    store.replay(host_crash=False)
    _fill(bookie_of(store))
    store.close()
    return files, index


def _fill(bookie: Bookie) -> None:
    frames = [
        v2.encode_request(v2.AddRequest(2, 0, KEY, entry(ledger, number, bytes(number * 20))))
        for number in range(_ENTRIES)
        for ledger in _LEDGERS
    ]
    area = memoryview(b"".join(frames))
    work = bookie.append(area, [(7, len(frames), 0, len(area))])
    bookie.store.sync()
    bookie.commit(work)
    bookie.respond(work, ResponseWriter(lambda _used: _SLOTS[0]))


_FILLED = _filled()


def _read(choices: Choices) -> bytes:
    """One request for entries; those near each other are what batches and reading ahead are about."""
    kind, ledger, number = choices.below(8), 1 + choices.below(4), choices.below(_ENTRIES + 2)
    if kind < 4:
        return v2.encode_request(v2.ReadRequest(2, 0, ledger, number - 1, None))
    if kind < 6:
        header = v3.Header(Operation.READ_ENTRY, choices.number(1), 0)
        return v3.encode_request(v3.ReadRequest(header, ledger, number, None))
    size = choices.one_of((1 << 20, 300, 0))
    return v2.encode_request(
        v2.BatchReadRequest(
            2 if kind == 6 else 1, 0, ledger, number, 5, choices.below(12), size, None
        )
    )


def _served(
    files: MemoryFiles, index: MemoryStore, requests: list[bytes]
) -> tuple[list[bytes], bool]:
    """The bodies of the answers, and whether some of them were late."""
    store = opened(files, index)
    store.replay(host_crash=False)
    bookie = bookie_of(store)
    area = memoryview(b"".join(requests))
    used: list[int] = []

    def more(size: int) -> memoryview:
        if used:
            used[-1] = size
        used.append(0)
        return _SLOTS[len(used) - 1]

    writer = ResponseWriter(more)
    work = bookie.append(area, [(7, len(requests), 0, len(area))])
    assert not work.waits, "reads wait for no sync"
    if bookie.has_reads(work):
        bookie.serve_reads(work, writer)
    deferred = work.cold_reads
    bookie.commit(work)
    bookie.respond(work, writer)
    if deferred is not None:
        assert deferred
        store.await_read(deferred.ranges)
        bookie.serve_cold_reads(work, writer)
    if used:
        used[-1] = writer.finish()
    answers = [
        bytes(body)
        for slot, size in zip(_SLOTS, used, strict=False)
        for _, _, frames in segments(slot, size)
        for body in bodies(frames, len(frames))
    ]
    store.abandon()
    return answers, deferred is not None


def _colds() -> list[bytes]:
    made = [bytes(1) + bytes((cold,)) * 64 + bytes((9, *(0, 0, 3) * 5)) for cold in (0, 1)]
    for kind in range(8):
        body = bytes((4, *(kind, 0, 2, 0, 9) * 5))
        made.append(b"\0" + bytes((1, 0)) * 32 + body)
        made.append(b"\7\0\x80" + bytes(range(64)) + body)
    return made


# ---- answers that wait for a slow client ------------------------------------------------------------


def check_light(data: bytes) -> object:
    """Any answers to a client that does not take them: as many come out, small, each to the same request; what was
    done is still said."""
    choices = Choices(data)
    answers = [_answer(choices) for _ in range(1 + choices.below(6))]
    kept = without_entries(b"".join(answers))
    light = list(bodies(kept, len(kept) + 5))
    assert len(light) == len(answers)
    assert without_entries(kept) == kept
    for before, after in zip(answers, light, strict=True):
        assert len(after) <= max(len(before), 64)
        _same(before[4:], bytes(after))
    return sorted({type(_decoded(bytes(after))).__name__ for after in light})


def _same(before: bytes, after: bytes) -> None:
    one, other = _decoded(before), _decoded(after)
    if one is None or type(one) is not type(other):
        assert before == after
        return
    for name in ("txn_id", "ledger_id", "entry_id", "request_id", "header"):
        assert getattr(one, name, None) == getattr(other, name, None)
    codes = getattr(one, "code", None), getattr(other, "code", None)
    carries = (
        getattr(one, "entry", None) is not None
        or "Read" in type(one).__name__
        or "List" in type(one).__name__
    )
    assert codes[0] is codes[1] or (codes == (Code.EOK, Code.ETOOMANYREQUESTS) and carries)
    assert not getattr(other, "entry", None)
    assert not getattr(other, "entries", None)
    assert not getattr(other, "availability", None)


def _decoded(body: bytes) -> v2.Response | v3.Response | None:
    try:
        return (v2 if body[0] < v3.FIRST_BYTE_MIN else v3).decode_response(body)
    except (EncodingError, FrameError):  # refusals repeat any version in their first byte
        return None


def _answer(choices: Choices) -> bytes:
    """One frame, as the bookies of this project make them."""
    kind, ledger, number, txn = choices.below(12), choices.id(), choices.id(), choices.id()
    code = choices.one_of((Code.EOK, Code.EOK, Code.ENOENTRY, Code.EIO, Code.EUNKNOWNLEDGERSTATE))
    old = Code.EIO if code is Code.EUNKNOWNLEDGERSTATE else code
    some = entry(ledger, number, bytes(choices.below(200)))
    good = code is Code.EOK
    match kind:
        case 0:
            return v2.encode_response(v2.AddResponse(choices.below(3), old, ledger, number))
        case 1 | 2:
            found = some if good else None
            return v2.encode_response(v2.ReadResponse(2, old, ledger, number, found))
        case 3:
            batch = (some,) * choices.below(4) if good else ()
            return v2.encode_response(v2.BatchReadResponse(2, old, ledger, number, 7, batch))
        case 4:
            refused = v2.BadVersion(choices.below(256), choices.one_of((1, 2, 7)), 1, 2, 3)
            return v2.encode_response(v2.bad_version_response(refused))
        case 5:
            return v3.encode_response(v3.AddResponse(txn, code, ledger, number))
        case 6 | 7:
            found = some if good else None
            return v3.encode_response(v3.ReadResponse(txn, code, ledger, number, found))
        case 8:
            return v3.encode_response(v3.ReadLacResponse(txn, code, ledger))
        case 9:
            return v3.encode_response(v3.ListEntriesResponse(txn, code, ledger, bytes(64)))
        case 10:
            return v3.encode_response(v3.ForceResponse(txn, code, ledger))
        case _:
            header = v3.Header(choices.one_of(tuple(Operation)), txn, 0)
            return v3.encode_response(v3.Refused(header, Code.EBADREQ))


def _lights() -> list[bytes]:
    return [bytes((5, *(kind, 1, 2, 3, code, 9) * 6)) for kind in range(12) for code in (0, 2, 4)]


TARGETS = (
    Target("cold", "reads of what is not in memory", _colds, check_cold, 0.03),
    Target("light", "answers that a client does not take", _lights, check_light, 0.3),
)
