"""What counts as there while a plan is carried out: what is read back, and what a bookie took and does not show."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bkbox.audit.execute import PlannedHoldings
from bkbox.audit.plan import Action, Step
from bkbox.base.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from bkbox.client.connection.response_matcher import Reply
from bkbox.protocol.audit import BookieReport, NoReport
from bkbox.protocol.events import NoResponse
from bkbox.wire.codes import Code
from bkbox.wire.digest import DigestManager
from bkbox.wire.metadata.ledger import DigestType, Fragment, LedgerMetadata, LedgerState

A, B = BookieId("a:1"), BookieId("b:1")
LEDGER = LedgerId(3)
METADATA = LedgerMetadata(
    LEDGER,
    2,
    2,
    2,
    LedgerState.CLOSED,
    (Fragment(EntryId(0), (A, B)),),
    last_entry=EntryId(9),
    digest_type=DigestType.CRC32C,
    password=b"",
)
RIGHT = DigestManager(LEDGER, DigestType.CRC32C, b"").package(4, NO_ENTRY, 0, b"right")
WRONG = RIGHT[:-1] + b"?"


class Shown:
    """A pool of bookies that give no lists; ``entry``: what A gives for entry 4, None where it does not answer."""

    def __init__(self, entry: bytes | None) -> None:
        self.entry = entry

    async def list_entries(self, *_asked: object) -> NoResponse:
        return NoResponse.CONNECTION_LOST

    async def read(self, *_asked: object) -> Reply:
        if self.entry is None:
            return Reply(NoResponse.TIMEOUT)
        return Reply(Code.EOK, memoryview(self.entry))


def holdings(pool: Shown, action: Action = Action.COPY) -> PlannedHoldings:
    anything: Any = pool
    return PlannedHoldings(anything, [Step(action, LEDGER, A, 4, 4, 1, "", "corrupt")])


def said_of_a(found: PlannedHoldings, registered: tuple[BookieId, ...] = (A, B)) -> BookieReport:
    return asyncio.run(found.ask(METADATA, registered))[A]


def test_a_copy_that_was_taken_and_is_not_shown_ends_the_work() -> None:
    pool = Shown(WRONG)
    found = holdings(pool)
    assert said_of_a(found) == [(0, 3), (5, 9)]
    assert found.unshown == {A: 0}
    found.given(A, [range(4, 5)])
    assert said_of_a(found) == [(0, 9)]
    assert found.unshown == {A: 1}
    pool.entry = RIGHT
    assert said_of_a(found) == [(0, 9)]
    assert found.unshown == {A: 0}


def test_what_was_not_given_is_lacking_still() -> None:
    found = holdings(Shown(WRONG))
    found.given(A, [range(4), range(5, 6)])
    found.given(B, [range(4, 5)])
    assert said_of_a(found) == [(0, 3), (5, 9)]


def test_who_does_not_answer_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkbox.audit.copies._PAUSE_S", 0.0)
    assert said_of_a(holdings(Shown(None))) is NoReport.SILENT


def test_who_is_not_there_is_gone_only_where_the_plan_gives_its_place_away() -> None:
    shown = Shown(RIGHT)
    assert said_of_a(holdings(shown), (B,)) is NoReport.SILENT
    assert said_of_a(holdings(shown, Action.REPLACE), (B,)) is NoReport.UNREGISTERED
    assert said_of_a(holdings(shown, Action.MOVE), (B,)) is NoReport.UNREGISTERED
