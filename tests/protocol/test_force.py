"""Ledgers with deferred sync: what is confirmed, and when a force counts, as playbooks."""

from __future__ import annotations

import pytest

from bkbox.errors import AddFailedError, HandleClosedError
from bkbox.protocol.events import Force
from bkbox.protocol.writer import LedgerWriter
from tests.protocol.notation import ledger
from tests.protocol.playbook import Player, play

TWO_ADDED = """
>> append a
<< deferred add 0 lac -1 length 1 to b1 b2 b3
>> append b
<< deferred add 1 lac -1 length 2 to b2 b3 b1
>> b1 add 0 ok
>> b2 add 0 ok
<< acked 0..0
>> b1 add 1 ok
>> b3 add 0 ok
>> b3 add 1 ok
<< acked 1..1
"""


def writer(ensemble_size: int = 3, write_quorum: int = 3, ack_quorum: int = 2) -> LedgerWriter:
    metadata = ledger(ensemble_size, write_quorum, ack_quorum)
    return LedgerWriter(metadata, version=1, deferred_sync=True)


def test_lac_moves_by_a_force_alone() -> None:
    machine = writer()
    player = Player(machine)
    player.play(TWO_ADDED)
    assert (machine.last_add_confirmed, machine.length) == (-1, 0)
    player.play(
        """
        >> append c
        << deferred add 2 lac -1 length 3 to b3 b1 b2
        >> force
        << force b1 b2 b3
        >> b1 force ok
        >> b2 add 2 ok
        >> b1 add 2 ok
        << acked 2..2
        >> b3 force ok
        >> b2 force ok
        << forced 1
        >> append d
        << deferred add 3 lac 1 length 4 to b1 b2 b3
        """
    )
    assert (machine.last_add_confirmed, machine.length) == (1, 2)


def test_a_force_of_nothing_new_is_done_at_once() -> None:
    machine = writer()
    player = Player(machine)
    player.play(
        """
        >> force
        << forced -1
        """
    )
    player.play(TWO_ADDED)
    player.play(
        """
        >> force
        << force b1 b2 b3
        >> b1 force ok
        >> b2 force ok
        >> b3 force ok
        << forced 1
        >> force
        << forced 1
        """
    )


def test_without_deferred_sync_all_that_is_acknowledged_is_forced() -> None:
    play(
        LedgerWriter(ledger(1, 1, 1), 1),
        """
        >> append a
        << add 0 lac -1 length 1 to b1
        >> b1 add 0 ok
        << acked 0..0
        >> force
        << forced 0
        """,
    )


def test_calls_during_a_force_share_the_next_one() -> None:
    player = Player(writer())
    player.play(TWO_ADDED)
    player.play(
        """
        >> force
        << force b1 b2 b3
        >> append c
        << deferred add 2 lac -1 length 3 to b3 b1 b2
        >> b3 add 2 ok
        >> b1 add 2 ok
        << acked 2..2
        >> force
        >> force
        >> b1 force ok
        >> b2 force ok
        >> b3 force ok
        << forced 1
        << force b1 b2 b3
        >> b1 force ok
        >> b2 force ok
        >> b3 force ok
        << forced 2
        << forced 2
        """
    )


@pytest.mark.parametrize("answer", ["EIO", "lost", "timeout", "EUA"])
def test_every_bookie_has_to_be_forced(answer: str) -> None:
    machine = writer()
    player = Player(machine)
    player.play(TWO_ADDED)
    player.play(
        f"""
        >> force
        << force b1 b2 b3
        >> b1 force ok
        >> b2 force {answer}
        << failed AddFailedError
        >> b3 force ok
        """
    )
    assert isinstance(machine.failure, AddFailedError)
    assert "b2" in str(machine.failure)
    with pytest.raises(HandleClosedError):
        machine.handle(Force())
    player.play(
        """
        >> close
        << write over 1: CLOSED at -1 length 0 0:b1,b2,b3
        >> written 2
        << closed: CLOSED at -1 length 0 0:b1,b2,b3
        """
    )


def test_a_force_on_a_later_connection_does_not_count_for_adds_before_it() -> None:
    machine = writer()
    player = Player(machine)
    player.play(TWO_ADDED)
    player.play(
        """
        >> force
        << force b1 b2 b3
        >> b1 force ok
        >> b3 force ok@2
        << failed AddFailedError
        """
    )
    assert "b3 was disconnected since it acknowledged adds" in str(machine.failure)
    assert machine.last_add_confirmed == -1


def test_a_connection_between_two_adds_is_noticed_too() -> None:
    machine = writer(1, 1, 1)
    play(
        machine,
        """
        >> append a
        << deferred add 0 lac -1 length 1 to b1
        >> b1 add 0 ok@1
        << acked 0..0
        >> append b
        << deferred add 1 lac -1 length 2 to b1
        >> b1 add 1 ok@2
        << acked 1..1
        >> force
        << force b1
        >> b1 force ok@2
        << failed AddFailedError
        """,
    )


def test_a_new_connection_after_a_force_is_no_harm() -> None:
    machine = writer(1, 1, 1)
    play(
        machine,
        """
        >> append a
        << deferred add 0 lac -1 length 1 to b1
        >> b1 add 0 ok@1
        << acked 0..0
        >> force
        << force b1
        >> b1 force ok@1
        << forced 0
        >> append b
        << deferred add 1 lac 0 length 2 to b1
        >> b1 add 1 ok@2
        << acked 1..1
        >> force
        << force b1
        >> b1 force ok@2
        << forced 1
        """,
    )


def test_an_add_answered_during_a_force_counts_for_the_next_one() -> None:
    """b1 answers it on its first connection, loses it, and is forced on its second."""
    machine = writer(1, 1, 1)
    play(
        machine,
        """
        >> append a
        << deferred add 0 lac -1 length 1 to b1
        >> b1 add 0 ok@1
        << acked 0..0
        >> append b
        << deferred add 1 lac -1 length 2 to b1
        >> force
        << force b1
        >> b1 add 1 ok@1
        << acked 1..1
        >> b1 force ok@1
        << forced 0
        >> force
        << force b1
        >> b1 force ok@2
        << failed AddFailedError
        """,
    )
    assert machine.last_add_confirmed == 0


@pytest.mark.parametrize("answer", ["EIO", "lost", "EREADONLY"])
def test_a_failed_bookie_ends_the_writer_and_is_not_replaced(answer: str) -> None:
    machine = writer()
    player = Player(machine)
    player.play(TWO_ADDED)
    player.play(
        f"""
        >> force
        << force b1 b2 b3
        >> b1 force ok
        >> b2 add 1 {answer}
        << failed AddFailedError
        >> b2 force ok
        >> b3 force ok
        """
    )
    assert machine.last_add_confirmed == -1
    assert not machine.failed_bookies or machine.failure is not None


def test_close_forces_first() -> None:
    player = Player(writer())
    player.play(TWO_ADDED)
    player.play(
        """
        >> append c
        << deferred add 2 lac -1 length 3 to b3 b1 b2
        >> force
        << force b1 b2 b3
        >> close
        >> b1 force ok
        >> b2 force ok
        >> b3 force ok
        << forced 1
        >> b3 add 2 ok
        >> b1 add 2 ok
        << acked 2..2
        << force b1 b2 b3
        >> b1 force ok
        >> b2 force ok
        >> b3 force ok
        << write over 1: CLOSED at 2 length 3 0:b1,b2,b3
        >> unavailable
        << read metadata
        >> metadata 2 CLOSED at 2 length 3 0:b1,b2,b3
        << closed: CLOSED at 2 length 3 0:b1,b2,b3
        """
    )


def test_a_close_whose_force_fails_ends_at_what_was_forced() -> None:
    player = Player(writer())
    player.play(TWO_ADDED)
    player.play(
        """
        >> close
        << force b1 b2 b3
        >> b3 force EIO
        << failed AddFailedError
        << write over 1: CLOSED at -1 length 0 0:b1,b2,b3
        """
    )
