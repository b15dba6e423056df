"""Answers that nobody waits for any more, or never asked for: they change nothing, or say whose mistake it is."""

from __future__ import annotations

import pytest

from bkbox.base.ids import BookieId, EntryId
from bkbox.errors import BugError
from bkbox.protocol import events as ev
from bkbox.protocol.longpoll import LongPoll
from bkbox.protocol.reader import EntryReader
from bkbox.protocol.recovery import LedgerRecovery
from bkbox.protocol.writer import LedgerWriter
from bkbox.wire.codes import Code
from tests.protocol.notation import ledger
from tests.protocol.playbook import Player, play
from tests.protocol.test_recovery_machine import EMPTY, fenced, found

NOBODYS = 1 << 30
"""A token that no machine has given out."""

OF_METADATA = [
    ev.MetadataRead(NOBODYS, ledger(3, 3, 2), 9),
    ev.MetadataWritten(NOBODYS, 9),
    ev.MetadataConflict(NOBODYS),
]
PICKED = ev.ReplacementsPicked(NOBODYS, (BookieId("b9"),))
READ = ev.ReadCompleted(NOBODYS, Code.ENOENTRY)


@pytest.mark.parametrize("event", [*OF_METADATA, READ])
def test_a_recovery_goes_on_as_if_nothing_had_come(event: ev.Event) -> None:
    player = fenced()
    assert player.machine.handle(event) == []
    player.play(EMPTY)


def test_a_recovery_takes_the_replacements_it_asked_for_only() -> None:
    player = found()
    assert player.machine.handle(PICKED) == []
    player.play(
        """
        >> b1 add 0 lost
        << pick for b1 of b1 b2 b3
        """
    )
    assert player.machine.handle(PICKED) == []
    player.play(
        """
        >> picked b4
        << recovery add 0 lac -1 length 1 to b4
        """
    )


@pytest.mark.parametrize("event", [PICKED, ev.AddsCompleted(1, EntryId(0), EntryId(0), Code.EOK)])
def test_what_a_recovery_cannot_have_asked_for_is_a_bug(event: ev.Event) -> None:
    with pytest.raises(BugError, match="has not requested"):
        fenced().machine.handle(event)


def test_a_recovery_whose_key_is_wrong_ends() -> None:
    found().play(
        """
        >> b1 add 0 EUA
        << failed UnauthorizedError
        """
    )


def test_metadata_that_a_recovery_has_only_read_cannot_have_been_written() -> None:
    player = Player(LedgerRecovery(ledger(1, 1, 1), version=1))
    player.play(
        """
        >> start
        << write over 1: IN_RECOVERY 0:b1
        >> conflict
        << read metadata
        """
    )
    with pytest.raises(BugError, match="nothing was written"):
        player.machine.handle(player._event("written 3"))


def replacing() -> Player:
    """A writer that has lost b1 and asked for another one."""
    player = Player(LedgerWriter(ledger(3, 3, 2), version=1))
    player.play(
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2 b3
        >> b1 add 0 lost
        << pick for b1 of b1 b2 b3
        """
    )
    return player


@pytest.mark.parametrize("event", [*OF_METADATA, PICKED])
def test_a_writer_goes_on_as_if_nothing_had_come(event: ev.Event) -> None:
    player = replacing()
    assert player.machine.handle(event) == []
    player.play(
        """
        >> picked b4
        << write over 1: OPEN 0:b4,b2,b3
        """
    )


def test_replacements_that_are_in_the_ensemble_are_a_bug() -> None:
    player = replacing()
    with pytest.raises(BugError, match="in the ensemble"):
        player.machine.handle(player._event("picked b2"))


def test_metadata_that_a_writer_has_only_read_cannot_have_been_written() -> None:
    player = Player(LedgerWriter(ledger(1, 1, 1), version=1))
    player.play(
        """
        >> append a
        << add 0 lac -1 length 1 to b1
        >> b1 add 0 lost
        << pick for b1 of b1
        >> picked b2
        << write over 1: OPEN 0:b2
        >> conflict
        << read metadata
        """
    )
    with pytest.raises(BugError, match="nothing was written"):
        player.machine.handle(player._event("written 3"))


def test_a_force_is_answered_once_by_each() -> None:
    writer = LedgerWriter(ledger(1, 1, 1), version=1, deferred_sync=True)
    player = Player(writer)
    player.play(
        """
        >> append a
        << deferred add 0 lac -1 length 1 to b1
        >> b1 add 0 ok
        << acked 0..0
        >> force
        << force b1
        """
    )
    assert writer.handle(ev.ForceCompleted(NOBODYS, Code.EIO, 1)) == []
    player.play(
        """
        >> b1 force ok
        << forced 0
        """
    )
    assert writer.handle(ev.ForceCompleted(NOBODYS, Code.EIO, 1)) == []


def test_a_reader_goes_on_as_if_nothing_had_come() -> None:
    player = Player(EntryReader(ledger(3, 3, 2), 4, EntryId(1)))
    player.play(">> start\n<< read 1 from b2")
    for event in (*OF_METADATA, READ):
        assert player.machine.handle(event) == []
    player.play(
        """
        >> b2 read 1 ok lac 0 length 2 b
        << found 1 lac 0 length 2 b
        """
    )


def test_a_reader_asks_nobody_else_when_it_has_asked_all() -> None:
    player = Player(EntryReader(ledger(1, 1, 1), 4, EntryId(0)))
    player.play(
        """
        >> start
        << read 0 from b1
        >> speculate
        """
    )


def test_a_ledger_that_was_closed_below_the_entry_meanwhile() -> None:
    play(
        EntryReader(ledger(1, 1, 1), 4, EntryId(3)),
        """
        >> start
        << read 3 from b1
        >> b1 read 3 ENOENTRY
        << read metadata
        >> metadata 5 CLOSED at 2 length 4 0:b1
        << failed NoSuchEntryError
        """,
    )


def test_a_long_poll_goes_on_as_if_nothing_had_come() -> None:
    player = Player(LongPoll(ledger(1, 1, 1), EntryId(2)))
    player.play(">> start\n<< poll b1 above 1, wait")
    assert player.machine.handle(ev.PollCompleted(NOBODYS, Code.EOK, EntryId(9))) == []
    player.play(
        """
        >> speculate
        >> b1 poll ok lac 2 length 9 hello
        << lac 2, 2 lac 2 length 9 hello
        """
    )


def test_a_recovery_that_has_ended_does_nothing_more() -> None:
    found().play(
        """
        >> b1 add 0 EUA
        << failed UnauthorizedError
        >> b2 add 0 lost
        >> b3 add 0 lost
        >> b2 read 1 ENOENTRY
        >> b3 read 1 ENOENTRY
        """
    )


def test_a_recovery_that_waits_for_replacements_does_not_give_up_for_another_loss() -> None:
    found().play(
        """
        >> b1 add 0 lost
        << pick for b1 of b1 b2 b3
        >> b2 add 0 lost
        >> picked b4
        << recovery add 0 lac -1 length 1 to b4
        << pick for b2 of b4 b2 b3
        """
    )


def test_replacements_that_came_too_late_for_an_entry_are_asked_for_again_by_the_next() -> None:
    found().play(
        """
        >> b1 add 0 lost
        << pick for b1 of b1 b2 b3
        >> b2 add 0 ok
        >> b3 add 0 ok
        >> picked b4
        >> b3 read 1 ok lac 0 length 2 b
        << recovery add 1 lac 0 length 2 to b2 b3
        << pick for b1 of b1 b2 b3
        << fencing read 2 from b3
        << fencing read 2 from b1
        << fencing read 2 from b2
        << fencing read 3 from b1
        << fencing read 3 from b2
        << fencing read 3 from b3
        """
    )
