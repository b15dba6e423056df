"""Version 3 against a real disk store: adds and LACs, what readers learn of a LAC, long polls by the clock."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.base.limits import EXPLICIT_LAC_BYTES_MAX
from bkbox.bookie import reading
from bkbox.bookie.bookie import Bookie
from bkbox.bookie.readonly import DISK_FULL
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.log.records import LedgerRecord
from tests.bookie.bench import (
    Clock,
    add3,
    ask3,
    bookie_of,
    carry_out,
    new_disk,
    open_store,
    poll3,
    polled,
    process,
    put_into_limbo,
    read3,
    simple3,
    statuses,
    write_lac3,
)
from tests.harness import raw
from tests.harness.raw import make_entry, payload_of
from tests.harness.raw3 import (
    EBADREQ,
    EFENCED,
    EIO,
    ENOENTRY,
    ENOLEDGER,
    EOK,
    EREADONLY,
    EUA,
    EUNKNOWN,
    FENCE,
    FORCE,
    LIST,
    READ_LAC,
    lac_packet,
    request,
)

STATUS, LEDGER, ENTRY, BODY, MAX_LAC, MOVED = 1, 2, 3, 4, 5, 6


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    opened = open_store(new_disk(tmp_path))
    yield opened
    opened.abandon()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bookie(store: DiskStore, clock: Clock) -> Bookie:
    return bookie_of(store, clock)


def parts(bookie: Bookie, *frames: bytes) -> list[dict[int, int | bytes]]:
    return [answer.part or {} for answer in ask3(bookie, *frames)]


# ---- both versions side by side ---------------------------------------------------------------------


def test_both_versions_share_ledgers_and_a_batch(bookie: Bookie) -> None:
    frames = raw.add_frame(1, 0, b"two"), add3(1, 1, b"three", txn=9), raw.read_frame(1, 1)
    bodies = process(bookie, *frames, read3(1, 0, txn=11))
    assert [body[0] for body in bodies] == [2, 0x0A, 2, 0x0A]  # reads wait for nothing
    assert payload_of(bodies[0][24:]) == b"three"


def test_a_fence_of_one_version_stops_adds_of_the_other(bookie: Bookie) -> None:
    assert statuses(bookie, add3(1, 0), read3(1, flag=FENCE), add3(1, 1)) == [EOK, EFENCED, EOK]
    [refused] = process(bookie, raw.add_frame(1, 1, b"late"))
    assert struct.unpack_from(">i", refused, 4) == (raw.EFENCED,)


# ---- adds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beside", [(1, 6), (2, 5), (-1, 5)])
def test_ids_beside_an_entry_must_be_those_in_it(bookie: Bookie, beside: tuple[int, int]) -> None:
    assert statuses(bookie, add3(*beside, body=make_entry(1, 5, b"x"))) == [EBADREQ]
    assert statuses(bookie, read3(1, 5)) == [ENOLEDGER]


@pytest.mark.parametrize(("size", "status"), [(0, EBADREQ), (23, EBADREQ), (24, EOK)])
def test_an_entry_has_a_header(bookie: Bookie, size: int, status: int) -> None:
    assert statuses(bookie, add3(1, 0, body=make_entry(1, 0, b"")[:size])) == [status]


@pytest.mark.parametrize("key", [b"", b"k", b"k" * 20, b"k" * 300])
def test_a_master_key_of_any_length(bookie: Bookie, key: bytes) -> None:
    assert statuses(bookie, add3(1, 0, key=key)) == [EOK]
    assert statuses(bookie, add3(1, 1, key=key), add3(1, 1, key=key + b"!")) == [EOK, EUA]
    assert statuses(bookie, read3(1, flag=FENCE, key=key + b"!")) == [EUA]
    assert statuses(bookie, add3(1, 1)) == [EOK if key == raw.master_key() else EUA]


def test_a_disk_over_its_bound_takes_high_priority_only(bookie: Bookie) -> None:
    statuses(bookie, add3(1, 0))
    bookie.watch_space(usage_max=0.0, reserve_bytes=0)
    assert statuses(bookie, add3(1, 1), add3(1, 1, recovery=True)) == [EREADONLY, EOK]
    assert statuses(bookie, write_lac3(1, 0), simple3(FORCE, 1)) == [EREADONLY, EOK]
    assert statuses(bookie, read3(9, flag=FENCE)) == [ENOENTRY]


# ---- explicit LAC -----------------------------------------------------------------------------------


def lac_of(bookie: Bookie, ledger: int) -> tuple[int, bytes | int | None, bytes | int | None]:
    [answer] = ask3(bookie, simple3(READ_LAC, ledger))
    assert answer.part is not None
    return answer.status, answer.part.get(3), answer.part.get(4)


def test_what_a_reader_learns_of_the_lac(bookie: Bookie) -> None:
    assert lac_of(bookie, 1) == (ENOENTRY, None, None)
    statuses(bookie, write_lac3(1, 4))
    assert lac_of(bookie, 1) == (EOK, lac_packet(1, 4), None)
    statuses(bookie, add3(1, 0, b"entry"))
    assert lac_of(bookie, 1) == (EOK, lac_packet(1, 4), make_entry(1, 0, b"entry"))
    statuses(bookie, add3(2, 0, b"entry"))
    assert lac_of(bookie, 2) == (EOK, None, make_entry(2, 0, b"entry"))
    statuses(bookie, read3(3, flag=FENCE))
    assert lac_of(bookie, 3) == (ENOENTRY, None, None)


def test_an_older_lac_never_replaces_a_newer_one(bookie: Bookie) -> None:
    assert statuses(bookie, write_lac3(1, 9), write_lac3(1, 3)) == [EOK, EOK]
    assert statuses(bookie, write_lac3(1, 8)) == [EOK]
    assert lac_of(bookie, 1)[1] == lac_packet(1, 9)


def test_a_lac_is_admitted_like_a_recovery_add(bookie: Bookie) -> None:
    other = b"o" * 20
    assert statuses(bookie, write_lac3(1, 0), write_lac3(1, 1, key=other)) == [EOK, EUA]
    assert statuses(bookie, add3(1, 0, key=other)) == [EUA]
    statuses(bookie, read3(1, flag=FENCE))
    assert statuses(bookie, write_lac3(1, 2)) == [EOK]
    put_into_limbo(bookie, 1)
    assert statuses(bookie, write_lac3(1, 3)) == [EOK]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        lac_packet(1, 5)[:15],
        lac_packet(2, 5),
        lac_packet(1, -2),
        lac_packet(1, 5) + bytes(EXPLICIT_LAC_BYTES_MAX),
    ],
)
def test_what_is_no_lac_packet_is_a_bad_request(bookie: Bookie, body: bytes) -> None:
    assert statuses(bookie, write_lac3(1, 5, body=body)) == [EBADREQ]
    assert lac_of(bookie, 1) == (ENOENTRY, None, None)


def test_the_packet_counts_and_not_what_is_said_beside_it(bookie: Bookie) -> None:
    assert statuses(bookie, write_lac3(1, 70, body=lac_packet(1, 7)), add3(1, 0)) == [EOK, EOK]
    assert parts(bookie, read3(1, 0))[0][MAX_LAC] == 7
    assert statuses(bookie, write_lac3(1, 7, body=lac_packet(1, 8)[:16])) == [EOK]
    assert lac_of(bookie, 1)[1] == lac_packet(1, 8)[:16]


def test_an_explicit_lac_is_there_after_a_start(tmp_path: Path, store: DiskStore) -> None:
    statuses(bookie_of(store), write_lac3(1, 6), write_lac3(1, 5))
    store.abandon()
    again = open_store(tmp_path / "disk")
    try:
        assert lac_of(bookie_of(again), 1) == (EOK, lac_packet(1, 6), None)
    finally:
        again.abandon()


# ---- the LAC beside an entry ------------------------------------------------------------------------


def test_the_lac_beside_an_entry_is_the_highest_known(bookie: Bookie) -> None:
    statuses(bookie, add3(1, 5, lac=4), add3(1, 6, lac=3))
    assert parts(bookie, read3(1, 6))[0][MAX_LAC] == 3, "the last entry's: nobody had asked before"
    statuses(bookie, add3(1, 2, lac=5))
    assert parts(bookie, read3(1, 6))[0][MAX_LAC] == 5
    statuses(bookie, write_lac3(1, 6))
    assert parts(bookie, read3(1, 6))[0][MAX_LAC] == 6
    statuses(bookie, write_lac3(1, 2), add3(1, 7, lac=-1))
    assert parts(bookie, read3(1, 2))[0][MAX_LAC] == 6


def test_a_fencing_read_says_nothing_about_the_lac(bookie: Bookie) -> None:
    statuses(bookie, add3(1, 0))
    [answer] = parts(bookie, read3(1, 0, flag=FENCE))
    assert set(answer) == {STATUS, LEDGER, ENTRY, BODY}


def test_an_entry_is_served_though_the_one_with_the_lac_is_damaged(
    tmp_path: Path, bookie: Bookie
) -> None:
    statuses(bookie, add3(1, 0, b"good"), add3(1, 1, b"rotten" * 10))
    damage(tmp_path)
    [answer] = ask3(bookie, read3(1, 0))
    assert (answer.status, set(answer.part or {})) == (EOK, {STATUS, LEDGER, ENTRY, BODY})
    assert statuses(bookie, read3(1, 1)) == [EIO]
    assert lac_of(bookie, 1) == (EIO, None, None)
    statuses(bookie, poll3(1, 0))
    assert [answer.status for _, answer in polled(bookie)] == [EIO]


def damage(folder: Path) -> None:
    [segment] = (folder / "disk" / "entrylog").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[data.rindex(b"rotten")] ^= 1
    segment.write_bytes(data)


# ---- limbo ------------------------------------------------------------------------------------------


def test_limbo_never_says_no(bookie: Bookie) -> None:
    statuses(bookie, add3(1, 0, b"here"), write_lac3(1, 0))
    put_into_limbo(bookie, 1)
    put_into_limbo(bookie, 2)
    [here] = ask3(bookie, read3(1, 0))
    assert (here.status, set(here.part or {})) == (EOK, {STATUS, LEDGER, ENTRY, BODY})
    assert statuses(bookie, read3(1, 1), read3(2), read3(2, 0)) == [EUNKNOWN] * 3
    assert statuses(bookie, read3(1, 0, flag=FENCE), read3(2, 0, flag=FENCE)) == [EOK, EUNKNOWN]
    assert statuses(bookie, simple3(READ_LAC, 1), simple3(READ_LAC, 2)) == [EUNKNOWN] * 2
    assert statuses(bookie, simple3(LIST, 1), simple3(LIST, 2)) == [EUNKNOWN] * 2
    assert statuses(bookie, poll3(1, -1), poll3(2, 5)) == []
    assert [answer.status for _, answer in polled(bookie)] == [EUNKNOWN] * 2
    assert statuses(bookie, add3(1, 1), add3(1, 1, recovery=True)) == [EFENCED, EOK]
    assert statuses(bookie, simple3(FORCE, 1)) == [EOK]


# ---- lists ------------------------------------------------------------------------------------------


def test_a_striped_ledger_that_fits_only_when_folded(
    bookie: Bookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    striped = [entry for entry in range(60) if entry % 3 < 2]
    statuses(bookie, *(add3(1, entry) for entry in striped), *(add3(2, e * e) for e in range(20)))
    header, group = 64, 24
    monkeypatch.setattr(reading, "_LIST_BYTES_MAX", header + 2 * group)
    folded, too_large = ask3(bookie, simple3(LIST, 1), simple3(LIST, 2))
    assert (folded.status, too_large.status) == (EOK, EIO)
    data = bytes((folded.part or {})[3])
    assert len(data) == header + group
    assert struct.unpack_from(">ii", data) == (0, 1)
    assert struct.unpack_from(">qqii", data, header) == (0, 57, 2, 3)


# ---- long polls -------------------------------------------------------------------------------------


def begin(bookie: Bookie, *frames: bytes) -> None:
    """Long polls begin; nothing is answered in their batch, or at once."""
    assert process(bookie, *frames) == []
    assert polled(bookie) == []


def the_answer(bookie: Bookie) -> dict[int, int | bytes]:
    [(connection, answer)] = polled(bookie)
    assert connection == 7
    assert answer.part is not None
    return answer.part


def test_an_add_with_a_larger_lac_ends_the_wait(bookie: Bookie, clock: Clock) -> None:
    statuses(bookie, add3(1, 0), add3(1, 1, lac=0))
    begin(bookie, poll3(1, 0))
    clock.advance(10)
    statuses(bookie, add3(1, 2, lac=0))
    assert polled(bookie) == [], "no advance"
    clock.advance(20)
    statuses(bookie, add3(1, 3, lac=1))
    clock.advance(30)
    assert the_answer(bookie) == {
        STATUS: EOK,
        LEDGER: 1,
        ENTRY: 1,
        BODY: make_entry(1, 1, b"x", 0),
        MAX_LAC: 1,
        MOVED: Clock.wall_ms + 30,
    }


def test_an_explicit_lac_ends_the_wait(bookie: Bookie) -> None:
    statuses(bookie, add3(1, 0), add3(1, 1))
    begin(bookie, poll3(1, 0))
    statuses(bookie, write_lac3(1, 0))
    assert polled(bookie) == []
    statuses(bookie, write_lac3(1, 1))
    answer = the_answer(bookie)
    assert (answer[ENTRY], answer[MAX_LAC], MOVED in answer) == (1, 1, True)


def test_an_advance_without_the_entry_here(bookie: Bookie) -> None:
    statuses(bookie, add3(1, 0))
    begin(bookie, poll3(1, 4))
    statuses(bookie, add3(1, 9, lac=8))
    assert the_answer(bookie) == {
        STATUS: EOK,
        LEDGER: 1,
        ENTRY: -1,
        MAX_LAC: 8,
        MOVED: Clock.wall_ms,
    }


def test_the_first_fence_ends_the_wait_and_the_second_does_not(bookie: Bookie) -> None:
    statuses(bookie, add3(1, 0))
    begin(bookie, poll3(1, 3))
    statuses(bookie, read3(1, flag=FENCE))
    assert the_answer(bookie) == {STATUS: EOK, LEDGER: 1, ENTRY: -1, MAX_LAC: -1}
    begin(bookie, poll3(1, 3))
    statuses(bookie, read3(1, flag=FENCE))
    assert polled(bookie) == []
    statuses(bookie, add3(1, 1, lac=4, recovery=True))
    assert the_answer(bookie)[MAX_LAC] == 4


def test_the_deadline_ends_the_wait(bookie: Bookie, clock: Clock) -> None:
    statuses(bookie, add3(1, 0), read3(2, flag=FENCE))
    begin(bookie, poll3(1, 3, 500), poll3(2, -1, 700))
    assert bookie.polls_wait_ms == 500
    clock.advance(499)
    assert (polled(bookie), bookie.polls_wait_ms) == ([], 1)
    clock.advance(1)
    assert the_answer(bookie) == {STATUS: EOK, LEDGER: 1, ENTRY: -1, MAX_LAC: -1}
    clock.advance(1_000)
    assert bookie.polls_wait_ms == 0
    assert the_answer(bookie) == {STATUS: ENOENTRY, LEDGER: 2, ENTRY: -1}, "known but empty"
    assert bookie.polls_wait_ms is None


def test_limbo_ends_the_wait(bookie: Bookie) -> None:
    statuses(bookie, add3(1, 0))
    begin(bookie, poll3(1, 3))
    put_into_limbo(bookie, 1)
    assert the_answer(bookie)[STATUS] == EUNKNOWN


@pytest.mark.parametrize("timeout_ms", [None, 0, -1, -(1 << 63)])
def test_no_time_is_no_wait(bookie: Bookie, timeout_ms: int | None) -> None:
    statuses(bookie, add3(1, 0))
    assert process(bookie, poll3(1, 3, timeout_ms)) == []
    assert the_answer(bookie) == {STATUS: EOK, LEDGER: 1, ENTRY: -1, MAX_LAC: -1}


def test_a_wait_is_bounded(bookie: Bookie) -> None:
    statuses(bookie, add3(1, 0))
    begin(bookie, poll3(1, 3, (1 << 63) - 1))
    assert bookie.polls_wait_ms == 300_000


def test_what_is_there_is_answered_at_once_also_after_a_start(
    tmp_path: Path, store: DiskStore, bookie: Bookie
) -> None:
    """The LAC is loaded before anybody waits."""
    statuses(bookie, add3(1, 0), add3(1, 1, lac=0), write_lac3(2, 3))
    store.abandon()
    again = open_store(tmp_path / "disk")
    try:
        fresh = bookie_of(again)
        assert process(fresh, poll3(1, -1)) == []
        assert the_answer(fresh) == {
            STATUS: EOK,
            LEDGER: 1,
            ENTRY: 0,
            BODY: make_entry(1, 0, b"x"),
            MAX_LAC: 0,
        }
        assert process(fresh, poll3(2, 2)) == []
        assert the_answer(fresh) == {STATUS: EOK, LEDGER: 2, ENTRY: -1, MAX_LAC: 3}
    finally:
        again.abandon()


def test_polls_that_cannot_be_are_answered_at_once(bookie: Bookie) -> None:
    statuses(bookie, add3(1, 0))
    frames = poll3(9, -1, txn=1), poll3(1, -1, entry=0, txn=2), read3(1, -2, txn=3, previous=5)
    assert process(bookie, *frames, poll3(-1, 0, txn=4)) == []
    found = {answer.txn: answer.status for _, answer in polled(bookie)}
    assert found == {1: ENOLEDGER, 2: EBADREQ, 3: EBADREQ, 4: EBADREQ}


def test_without_piggyback_the_wait_ends_with_a_plain_read(bookie: Bookie, clock: Clock) -> None:
    statuses(bookie, add3(1, 0, b"zero"))
    begin(bookie, read3(1, 0, previous=3, timeout_ms=100))
    clock.advance(100)
    assert the_answer(bookie) == {
        STATUS: EOK,
        LEDGER: 1,
        ENTRY: 0,
        BODY: make_entry(1, 0, b"zero"),
        MAX_LAC: -1,
    }


def test_piggyback_without_a_previous_lac_is_a_plain_read(bookie: Bookie) -> None:
    statuses(bookie, add3(1, 0))
    [answer] = parts(bookie, read3(1, 0, flag=2, timeout_ms=1_000))
    assert (answer[STATUS], answer[ENTRY], answer[MAX_LAC]) == (EOK, 0, -1)


def test_a_fencing_read_never_waits(bookie: Bookie) -> None:
    statuses(bookie, add3(1, 0))
    assert statuses(bookie, read3(1, flag=FENCE, previous=5, timeout_ms=1_000)) == [EOK]


@pytest.mark.parametrize("previous", [-2, -3, -(1 << 63)])
def test_a_previous_lac_below_all_is_no_entry_to_read(bookie: Bookie, previous: int) -> None:
    """-2 + 1 would be the last entry."""
    statuses(bookie, add3(1, 0))
    assert process(bookie, poll3(1, previous)) == []
    assert the_answer(bookie) == {STATUS: EOK, LEDGER: 1, ENTRY: -1, MAX_LAC: -1}


def test_polls_of_a_connection_or_a_front_end_that_is_gone_are_forgotten(
    bookie: Bookie, clock: Clock
) -> None:
    statuses(bookie, add3(1, 0))
    begin(bookie, poll3(1, 3))
    assert carry_out(bookie, memoryview(b""), [(7, 0, 0, 0)]) == []
    clock.advance(2_000)
    assert polled(bookie) == []
    begin(bookie, poll3(1, 3))
    bookie.forget_connections(range(1 << 32))
    assert (polled(bookie), bookie.polls_wait_ms) == ([], None)


# ---- what fails -------------------------------------------------------------------------------------


def test_a_failed_disk_forces_and_acknowledges_nothing(store: DiskStore, bookie: Bookie) -> None:
    statuses(bookie, add3(1, 0))
    store.health.failed_reason = "fdatasync failed"
    frames = add3(1, 1), write_lac3(1, 1), simple3(FORCE, 1), read3(2, flag=FENCE)
    assert statuses(bookie, *frames) == [EIO] * 4
    assert statuses(bookie, read3(1, 0), read3(1, 1), simple3(FORCE, 5)) == [EOK, ENOENTRY, EIO]


def test_a_full_disk_still_forces_what_was_there_before(
    store: DiskStore, bookie: Bookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bkbox.errors import DiskFullError

    statuses(bookie, add3(1, 0, deferred=True))

    def full(_batch: object) -> None:
        raise DiskFullError("no room")

    monkeypatch.setattr(store, "append", full)
    assert statuses(bookie, add3(1, 1), simple3(FORCE, 1)) == [EREADONLY, EOK]
    assert DISK_FULL in bookie.read_only.reasons


def test_states_that_are_written_by_the_supervisor_count(bookie: Bookie) -> None:
    statuses(bookie, add3(1, 0))
    begin(bookie, poll3(1, 3))
    bookie.set_states({1: LedgerRecord(raw.master_key(), fenced=True)})
    assert the_answer(bookie)[STATUS] == EOK


def test_negative_ledgers_are_bad_requests(bookie: Bookie) -> None:
    frames = [add3(-1, 0), write_lac3(-1, 0), simple3(READ_LAC, -1), simple3(LIST, -1)]
    assert statuses(bookie, *frames, read3(-1, 0), read3(1, -2)) == [EBADREQ] * 6
    assert statuses(bookie, request(1, 1, [(1, 1), (2, -2), (3, b""), (100, FENCE)])) == [EBADREQ]
