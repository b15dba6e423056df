"""What each class of crash takes, and what the boot after it marks."""

from __future__ import annotations

import pytest

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.base.values import replaced
from bkbox.protocol.boot import mark_for
from bkbox.wire.metadata import ledger as wire
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from proof.model import crash
from proof.model.network import LOST, THERE, Kind, Message
from proof.model.options import Clearing, Loss, Marks, Options, Status
from proof.model.state import ActorView, Fragment, World

BASE = Options(bookies=3)
STATES = {
    Status.OPEN: LedgerState.OPEN,
    Status.RECOVERING: LedgerState.IN_RECOVERY,
    Status.CLOSED: LedgerState.CLOSED,
}
FENCE = Message(Kind.FENCE, 0)
ADDED = Message(Kind.ADDED, 0, 1, 1)
PART = ActorView(((1, 1),), fenced=True, lac=1, mail=((ADDED, THERE), (FENCE, THERE)))


def world(status: Status = Status.OPEN, ensemble: int = 0b011) -> World:
    return World(status, (Fragment(ensemble, 1),), version=1)


def after(options: Options, part: ActorView = PART, seen: World | None = None) -> list[ActorView]:
    steps = list(crash.moves(seen or world(), part, 0, options))
    for step in steps:
        assert step.world is None or step.world.crashes == 1
    return [step.part for step in steps if step.part is not None]


def test_a_crash_loses_requests_on_their_way_and_no_answers() -> None:
    [part] = after(BASE)
    assert dict(part.mail) == {ADDED: THERE, FENCE: LOST}
    assert (part.entries, part.lac, part.fenced, part.limbo) == ((), 0, True, True)


@pytest.mark.parametrize(
    ("changes", "fenced", "limbo"),
    [
        ({"fence": False}, False, True),
        ({"fence": False, "durable_fence": True}, True, True),
        ({"limbo": False}, True, False),
    ],
)
def test_marks(changes: dict[str, bool], fenced: bool, limbo: bool) -> None:
    [part] = after(replaced(BASE, **changes))
    assert (part.fenced, part.limbo) == (fenced, limbo)


@pytest.mark.parametrize(
    ("marks", "status", "ensemble", "fenced", "limbo"),
    [
        (Marks.NOT_CLOSED, Status.CLOSED, 0b011, False, False),
        (Marks.NOT_CLOSED, Status.RECOVERING, 0b011, True, True),
        (Marks.NAMED, Status.CLOSED, 0b011, True, True),
        (Marks.NAMED, Status.CLOSED, 0b110, True, False),
        (Marks.NAMED, Status.RECOVERING, 0b110, True, True),
        (Marks.NAMED, Status.OPEN, 0b110, False, False),
        (Marks.NAMED, Status.OPEN, 0b001, True, True),
    ],
)
def test_which_ledgers_are_marked(
    marks: Marks, status: Status, ensemble: int, fenced: bool, limbo: bool
) -> None:
    [part] = after(replaced(BASE, marks=marks), seen=world(status, ensemble))
    assert (part.fenced, part.limbo) == (fenced, limbo)


@pytest.mark.parametrize("status", list(STATES))
@pytest.mark.parametrize("ensemble", [0b011, 0b110])
def test_named_is_the_rule_that_the_bookie_boots_by(status: Status, ensemble: int) -> None:
    ids = [BookieId(f"bookie{number}:3181") for number in range(3)]
    named = tuple(each for number, each in enumerate(ids) if ensemble >> number & 1)
    metadata = LedgerMetadata(
        LedgerId(1), 2, 2, 1, STATES[status], (wire.Fragment(EntryId(0), named),)
    )
    mark = mark_for(metadata, ids[0], recorded_safely=False, underreplicated=False)
    [part] = after(replaced(BASE, marks=Marks.NAMED), seen=world(status, ensemble))
    assert (part.fenced, part.limbo) == ((mark.fence, mark.limbo) if mark else (False, False))


def test_a_process_crash_keeps_what_is_stored() -> None:
    [part] = after(replaced(BASE, loss=Loss.PROCESS, fence=False))
    assert part == PART._replace(mail=part.mail)


def test_a_disk_that_is_lost_is_the_ledgers_or_the_other() -> None:
    lost, kept = after(replaced(BASE, loss=Loss.DISK))
    assert (lost.entries, lost.fenced, lost.limbo) == ((), True, True)
    assert (kept.entries, kept.fenced, kept.limbo) == (((1, 1),), True, False)
    # Recorded on no disk: nobody can tell that nothing is lost.
    assert {part.limbo for part in after(replaced(BASE, loss=Loss.DISK), ActorView())} == {True}


def test_a_device_that_was_away_keeps_what_was_synced() -> None:
    [noticed] = after(replaced(BASE, loss=Loss.DEVICE))
    assert (noticed.entries, noticed.fenced, noticed.limbo) == ((), True, True)
    [unnoticed] = after(replaced(BASE, loss=Loss.DEVICE, mounts=False), PART._replace(fenced=False))
    assert (unnoticed.entries, unnoticed.fenced, unnoticed.limbo) == ((), False, False)


def test_a_copy_comes_before_the_metadata_names_it() -> None:
    options = replaced(BASE, copies=True, crashes=0, marks=Marks.NAMED)
    closed = world(Status.CLOSED, 0b110)._replace(last=1)
    [copied] = after(options, ActorView(), closed)
    assert (copied.entries, copied.copied) == (((1, 1),), True)
    steps = list(crash.moves(closed, copied, 0, options))
    ensembles = [step.world.fragments[-1].ensemble for step in steps if step.world is not None]
    assert ensembles == [0b101, 0b011]
    assert after(options, copied, world(Status.CLOSED)) == []


@pytest.mark.parametrize("records", [True, False])
def test_a_copy_that_is_not_named_is_marked_as_the_bookie_does(records: bool) -> None:
    closed = world(Status.CLOSED, 0b110)._replace(last=1)
    options = replaced(BASE, copies=True, marks=Marks.NAMED, records=records)
    lost = [
        step.part
        for step in crash.moves(closed, PART._replace(copied=True), 0, options)
        if step.world is not None and step.world.crashes == 1
    ]
    ids = [BookieId(f"bookie{number}:3181") for number in range(3)]
    metadata = LedgerMetadata(
        LedgerId(1), 2, 2, 1, LedgerState.CLOSED, (wire.Fragment(EntryId(0), (ids[1], ids[2])),)
    )
    mark = mark_for(
        metadata, ids[0], recorded_safely=False, underreplicated=False, recorded=records
    )
    assert mark is not None
    assert [(part.fenced, part.limbo) for part in lost if part] == [(mark.fence, mark.limbo)]


def test_an_unclean_shutdown_may_go_unnoticed() -> None:
    assert {part.limbo for part in after(replaced(BASE, unnoticed=True))} == {True, False}


def test_crashes_keep_to_their_window_and_number() -> None:
    closed = replaced(BASE, windows=(Status.CLOSED,))
    assert after(closed) == []
    assert len(after(closed, seen=world(Status.CLOSED))) == 1
    assert after(BASE, seen=world()._replace(crashes=1)) == []


@pytest.mark.parametrize(
    ("clearing", "status", "clears"),
    [
        (Clearing.NEVER, Status.CLOSED, False),
        (Clearing.AFTER_CLOSE, Status.RECOVERING, False),
        (Clearing.AFTER_CLOSE, Status.CLOSED, True),
        (Clearing.ANY_TIME, Status.OPEN, True),
    ],
)
def test_when_limbo_is_cleared(clearing: Clearing, status: Status, clears: bool) -> None:
    options = replaced(BASE, clearing=clearing, crashes=0)
    cleared = after(options, ActorView(limbo=True), world(status))
    assert [part.limbo for part in cleared] == [False] * clears
    assert after(options, ActorView(), world(status)) == []
