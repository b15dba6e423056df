"""One connection's requests: which version it speaks, what is answered at once, what is remembered of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bkbox.errors import DiskError, FrameError
from bkbox.frontend import request_router as intake_module
from bkbox.frontend.disk_link import DiskLink
from bkbox.frontend.disk_space import space_of
from bkbox.frontend.ledger_directory import Purpose
from bkbox.frontend.overload.overload_responses import without_entries
from bkbox.frontend.request_router import RequestRouter, RoutedRequest
from bkbox.storage.files import Space
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.v3_format import Operation
from tests.harness import raw
from tests.harness.raw3 import (
    ADD,
    EIO,
    FENCE,
    FORCE,
    LIST,
    READ,
    READ_LAC,
    WRITE_LAC,
    Fields,
    add_part,
    answer_of,
    lac_packet,
    read_part,
    request,
)


class OneDisk:
    """A router with one link at a time, which writes down what it was asked."""

    def __init__(self) -> None:
        self.link = DiskLink.__new__(DiskLink)
        self.asked: list[tuple[int, Purpose]] = []

    def replace_worker(self) -> None:
        self.link = DiskLink.__new__(DiskLink)

    def route(self, ledger: int, purpose: Purpose, _connection: int) -> DiskLink | Code:
        self.asked.append((ledger, purpose))
        return self.link

    def space(self) -> Space:
        raise DiskError("no size")


@pytest.fixture
def router() -> OneDisk:
    return OneDisk()


@pytest.fixture
def intake(router: OneDisk) -> RequestRouter:
    return RequestRouter(router)


def take(intake: RequestRouter, frame: bytes) -> RoutedRequest | bytes:
    return intake.dispatch(memoryview(frame)[4:])


def taken3(intake: RequestRouter, operation: int, part: Fields) -> RoutedRequest:
    found = take(intake, request(operation, 9, part))
    assert isinstance(found, RoutedRequest)
    return found


def test_what_a_request_means_for_a_ledger_that_no_disk_has(
    router: OneDisk, intake: RequestRouter
) -> None:
    lac = [(1, 6), (2, 0), (3, b""), (4, lac_packet(6, 0))]
    for operation, part in (
        (ADD, add_part(1, 0)),
        (ADD, add_part(2, 0, recovery=True)),
        (READ, read_part(3)),
        (READ, read_part(4, flag=FENCE)),
        (READ, read_part(5, previous=1)),
        (WRITE_LAC, lac),
        (READ_LAC, [(1, 7)]),
        (FORCE, [(1, 8)]),
        (LIST, [(1, 9)]),
    ):
        taken3(intake, operation, part)
    for frame in (
        raw.add_frame(11, 0, b""),
        raw.add_frame(12, 0, b"", raw.RECOVERY),
        raw.read_frame(13, 0),
        raw.read_frame(14, 0, raw.FENCE),
        raw.batch_frame(15, 0, 1),
        raw.batch_frame(16, 0, 1, flags=raw.FENCE),
    ):
        take(intake, frame)
    write, recover, read = Purpose.WRITE, Purpose.RECOVER, Purpose.READ
    assert router.asked == [
        (1, write),
        (2, recover),
        (3, read),
        (4, recover),
        (5, read),
        (6, Purpose.WRITE_LAC),
        (7, Purpose.READ_LAC),
        (8, Purpose.FORCE),
        (9, read),
        (11, write),
        (12, recover),
        (13, read),
        (14, recover),
        (15, read),
        (16, recover),
    ]


def test_what_weighs_by_its_own_bytes_and_what_waits(intake: RequestRouter) -> None:
    assert taken3(intake, ADD, add_part(1, 0)).costs_request_bytes
    assert taken3(intake, FORCE, [(1, 1)]).costs_request_bytes
    assert not taken3(intake, READ, read_part(1)).costs_request_bytes
    assert not taken3(intake, READ_LAC, [(1, 1)]).costs_request_bytes
    poll = taken3(intake, READ, read_part(1, previous=3, timeout_ms=5))
    assert not poll.costs_request_bytes
    assert poll.poll is not None
    txn, answer = poll.poll
    assert (txn, answer_of(answer[4:]).status) == (9, EIO)
    assert taken3(intake, READ, read_part(1, flag=FENCE, previous=3)).poll is None


def test_version_2_is_for_good(intake: RequestRouter) -> None:
    assert isinstance(take(intake, raw.read_frame(1, 0)), RoutedRequest)
    for _ in range(2):
        with pytest.raises(FrameError):
            take(intake, request(READ, 1, read_part(1)))
    assert isinstance(take(intake, raw.read_frame(1, 0)), RoutedRequest)


def test_a_force_is_refused_after_the_worker_of_a_deferred_add(
    router: OneDisk, intake: RequestRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake_module, "DEFERRED_LEDGERS_MAX", 2)
    for ledger in (1, 2, 1):
        taken3(intake, ADD, add_part(ledger, 0, deferred=True))
    taken3(intake, ADD, add_part(3, 0))
    taken3(intake, FORCE, [(1, 1)])
    router.replace_worker()
    refused = take(intake, request(FORCE, 5, [(1, 1)]))
    assert isinstance(refused, bytes)
    assert answer_of(refused[4:]).status == EIO
    assert isinstance(take(intake, request(FORCE, 5, [(1, 2)])), bytes)
    taken3(intake, FORCE, [(1, 3)])
    taken3(intake, ADD, add_part(4, 0, deferred=True))  # the one of longest ago is forgotten
    taken3(intake, FORCE, [(1, 2)])
    assert isinstance(take(intake, request(FORCE, 5, [(1, 1)])), bytes)


def test_a_size_that_cannot_be_found_out(intake: RequestRouter) -> None:
    answer = take(intake, request(8, 1, [(1, 3)]))
    assert isinstance(answer, bytes)
    assert answer_of(answer[4:]).status == EIO


def test_each_file_system_counts_once(tmp_path: Path) -> None:
    one = space_of([str(tmp_path)])
    (tmp_path / "other").mkdir()
    found = os.statvfs(tmp_path)
    assert one.total == found.f_frsize * found.f_blocks
    assert space_of([str(tmp_path), str(tmp_path / "other")]).total == one.total
    assert space_of([str(tmp_path), "/proc"]).total == one.total + space_of(["/proc"]).total
    assert space_of([]) == Space(0, 0)
    with pytest.raises(DiskError, match="absent"):
        space_of([str(tmp_path / "absent")])


def test_late_answers_lose_what_they_carry_and_nothing_else() -> None:
    entry = raw.make_entry(1, 0, b"x" * 1000)
    ok, absent, late = Code.EOK, Code.ENOENTRY, Code.ETOOMANYREQUESTS
    answers = [
        v2.AddResponse(2, ok, 1, 0),
        v2.ReadResponse(2, ok, 1, -1, entry),
        v2.ReadResponse(2, absent, 1, 5),
        v2.BatchReadResponse(2, ok, 1, 0, 77, (entry, entry)),
    ]
    light = [
        answers[0],
        v2.ReadResponse(2, late, 1, -1),
        answers[2],
        v2.BatchReadResponse(2, late, 1, 0, 77),
    ]
    answers3: list[v3.Response] = [
        v3.AddResponse(1, ok, 1, 0),
        v3.ReadResponse(2, ok, 1, -1, entry, 5, 6),
        v3.ReadResponse(3, absent, 1, 5),
        v3.ReadLacResponse(4, ok, 1, b"packet", entry),
        v3.ListEntriesResponse(5, ok, 1, bytes(64)),
        v3.ForceResponse(6, ok, 1),
        v3.Refused(v3.Header(Operation.START_TLS, 7), Code.EBADREQ),
    ]
    light3: list[v3.Response] = [
        answers3[0],
        v3.ReadResponse(2, late, 1, -1),
        answers3[2],
        v3.ReadLacResponse(4, late, 1),
        v3.ListEntriesResponse(5, late, 1),
        answers3[5],
        answers3[6],
    ]
    given = [*map(v2.encode_response, answers), *map(v3.encode_response, answers3)]
    expected = [*map(v2.encode_response, light), *map(v3.encode_response, light3)]
    assert without_entries(b"".join(given)) == b"".join(expected)
