"""The writer: adds, fences, ensemble changes and closing, as playbooks."""

from __future__ import annotations

import pytest

from bkbox.errors import HandleClosedError, LedgerClosedError
from bkbox.protocol.events import Append
from bkbox.protocol.writer import LedgerWriter
from bkbox.wire.metadata.ledger import LedgerState
from tests.protocol.notation import ledger
from tests.protocol.playbook import Player, play


def writer(ensemble_size: int = 3, write_quorum: int = 3, ack_quorum: int = 2) -> LedgerWriter:
    return LedgerWriter(ledger(ensemble_size, write_quorum, ack_quorum), version=1)


# ---- adds -----------------------------------------------------------------------------------------


def test_acked_at_the_ack_quorum() -> None:
    play(
        writer(),
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2 b3
        >> b1 add 0 ok
        >> b3 add 0 ok
        << acked 0..0
        >> b2 add 0 ok
        """,
    )


def test_acked_in_order_and_lac_rides_on_later_adds() -> None:
    play(
        writer(3, 2, 2),
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2
        >> append bc
        << add 1 lac -1 length 3 to b2 b3
        >> b2 add 1 ok
        >> b3 add 1 ok
        >> b1 add 0 ok
        >> b2 add 0 ok
        << acked 0..1
        >> append d
        << add 2 lac 1 length 4 to b3 b1
        """,
    )


def test_a_fenced_writer_fails_what_is_outstanding() -> None:
    machine = writer()
    play(
        machine,
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2 b3
        >> append b
        << add 1 lac -1 length 2 to b2 b3 b1
        >> b1 add 0 ok
        >> b2 add 0 EFENCED
        << failed LedgerFencedError
        >> b3 add 0 ok
        """,
    )
    assert machine.failure is not None
    assert machine.failure.may_have_taken_effect
    assert "b2 answered EFENCED" in str(machine.failure)
    with pytest.raises(HandleClosedError):
        machine.handle(Append((b"c",)))


def test_a_bookie_that_was_disconnected_may_have_fenced_the_ledger_itself() -> None:
    """It lost its host and fenced its open ledgers when it started: it is replaced like any that fails."""
    play(
        writer(),
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2 b3
        >> b1 add 0 ok
        >> b2 add 0 ok
        << acked 0..0
        >> append b
        << add 1 lac 0 length 2 to b2 b3 b1
        >> b2 add 1 EFENCED@2
        << pick for b2 of b1 b2 b3
        >> picked b4
        << write over 1: OPEN 0:b1,b2,b3 1:b1,b4,b3
        >> written 2
        << add 1 lac 0 length 2 to b4
        >> b4 add 1 EFENCED@7
        << failed LedgerFencedError
        """,
    )


def test_a_recovery_that_fenced_everybody_ends_a_writer_that_was_disconnected() -> None:
    """Without a replacement the metadata is not asked; that so many are fenced says it all."""
    machine = writer()
    play(
        machine,
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2 b3
        >> b1 add 0 ok
        >> b2 add 0 ok
        << acked 0..0
        >> b3 add 0 ok
        >> append b
        << add 1 lac 0 length 2 to b2 b3 b1
        >> b2 add 1 EFENCED@2
        << pick for b2 of b1 b2 b3
        >> b3 add 1 EFENCED@2
        >> picked none
        << pick for b2 b3 of b1 b2 b3
        >> picked none
        << failed LedgerFencedError
        """,
    )
    assert "b2 answered EFENCED" in str(machine.failure)


def test_a_wrong_password_ends_the_writer() -> None:
    play(
        writer(),
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2 b3
        >> b1 add 0 EUA
        << failed UnauthorizedError
        """,
    )


def test_only_a_new_ledger_is_written() -> None:
    with pytest.raises(LedgerClosedError):
        LedgerWriter(ledger(1, 1, 1, state=LedgerState.CLOSED), 4)


# ---- ensemble changes -----------------------------------------------------------------------------


def test_a_failed_bookie_is_replaced_from_lac_plus_one() -> None:
    play(
        writer(),
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2 b3
        >> b1 add 0 ok
        >> b2 add 0 ok
        << acked 0..0
        >> append b
        << add 1 lac 0 length 2 to b2 b3 b1
        >> b3 add 0 lost
        << pick for b3 of b1 b2 b3
        >> picked b4
        << write over 1: OPEN 0:b1,b2,b3 1:b1,b2,b4
        >> written 2
        << add 1 lac 0 length 2 to b4
        >> b4 add 1 ok
        >> b2 add 1 ok
        << acked 1..1
        >> b3 add 1 lost
        """,
    )


def test_the_last_fragment_is_replaced_where_it_starts_there() -> None:
    play(
        writer(2, 2, 2),
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2
        >> b2 add 0 timeout
        << pick for b2 of b1 b2
        >> picked b3
        << write over 1: OPEN 0:b1,b3
        >> written 2
        << add 0 lac -1 length 1 to b3
        >> b3 add 0 EIO
        << pick for b3 of b1 b3
        >> picked b4
        << write over 2: OPEN 0:b1,b4
        >> written 3
        << add 0 lac -1 length 1 to b4
        >> b4 add 0 ok
        >> b1 add 0 ok
        << acked 0..0
        """,
    )


def test_nothing_is_acked_while_the_change_is_being_written() -> None:
    """b3 holds entry 0, but the new ensemble says b4: with b3's answer counted it would have one."""
    play(
        writer(),
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2 b3
        >> append b
        << add 1 lac -1 length 2 to b2 b3 b1
        >> b3 add 0 ok
        >> b3 add 1 EIO
        << pick for b3 of b1 b2 b3
        >> picked b4
        << write over 1: OPEN 0:b1,b2,b4
        >> b1 add 0 ok
        >> written 2
        << add 0 lac -1 length 1 to b4
        << add 1 lac -1 length 2 to b4
        >> b4 add 0 ok
        << acked 0..0
        """,
    )


def test_all_failed_bookies_are_replaced_at_once_as_far_as_there_are_spares() -> None:
    play(
        writer(4, 4, 2),
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2 b3 b4
        >> b1 add 0 EIO
        << pick for b1 of b1 b2 b3 b4
        >> b2 add 0 lost
        >> picked b5
        << write over 1: OPEN 0:b5,b2,b3,b4
        >> written 2
        << add 0 lac -1 length 1 to b5
        << pick for b2 of b5 b2 b3 b4
        >> picked none
        >> b3 add 0 ok
        >> b5 add 0 ok
        << acked 0..0
        """,
    )


def test_without_a_spare_the_rest_goes_on_until_it_cannot() -> None:
    machine = writer()
    play(
        machine,
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2 b3
        >> b3 add 0 lost
        << pick for b3 of b1 b2 b3
        >> picked none
        >> append b
        << add 1 lac -1 length 2 to b2 b1
        >> b1 add 0 ok
        >> b2 add 0 ok
        << acked 0..0
        >> b1 add 1 ok
        >> b2 add 1 EREADONLY
        << pick for b2 b3 of b1 b2 b3
        >> picked none
        << failed AddFailedError
        """,
    )
    assert "b2 answered EREADONLY, b3: connection lost" in str(machine.failure)


def test_a_bookie_that_is_back_gets_what_it_missed() -> None:
    play(
        writer(),
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2 b3
        >> b3 add 0 lost
        << pick for b3 of b1 b2 b3
        >> picked none
        >> append b
        << add 1 lac -1 length 2 to b2 b1
        >> back b3
        << add 0 lac -1 length 1 to b3
        << add 1 lac -1 length 2 to b3
        >> b3 add 0 ok
        >> b1 add 0 ok
        << acked 0..0
        """,
    )


def test_a_new_bookie_is_a_reason_to_ask_again() -> None:
    play(
        writer(),
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2 b3
        >> b3 add 0 lost
        << pick for b3 of b1 b2 b3
        >> picked none
        >> back b9
        << pick for b3 of b1 b2 b3
        >> picked b9
        << write over 1: OPEN 0:b1,b2,b9
        """,
    )


def test_striped_entries_fail_at_once_if_their_write_set_is_short() -> None:
    play(
        writer(3, 2, 2),
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2
        >> b1 add 0 lost
        << pick for b1 of b1 b2 b3
        >> picked none
        << failed AddFailedError
        """,
    )


def test_late_answers_of_a_replaced_bookie_are_ignored() -> None:
    play(
        writer(2, 2, 1),
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2
        >> append b
        << add 1 lac -1 length 2 to b2 b1
        >> b2 add 0 timeout
        << pick for b2 of b1 b2
        >> picked b3
        << write over 1: OPEN 0:b1,b3
        >> written 2
        << add 0 lac -1 length 1 to b3
        << add 1 lac -1 length 2 to b3
        >> b2 add 1 ok
        >> b3 add 0 ok
        << acked 0..0
        >> b3 add 1 ok
        << acked 1..1
        """,
    )


CHANGE = """
    >> append a
    << add 0 lac -1 length 1 to b1 b2 b3
    >> b3 add 0 lost
    << pick for b3 of b1 b2 b3
    >> picked b4
    << write over 1: OPEN 0:b1,b2,b4
    """


def changing() -> Player:
    player = Player(writer())
    player.play(CHANGE)
    return player


def test_change_lost_to_a_recovery() -> None:
    changing().play(
        """
        >> conflict
        << read metadata
        >> metadata 2 IN_RECOVERY 0:b1,b2,b3
        << failed LedgerFencedError
        """
    )


def test_change_lost_to_a_close() -> None:
    changing().play(
        """
        >> conflict
        << read metadata
        >> metadata 3 CLOSED at 0 length 1 0:b1,b2,b3
        << failed LedgerClosedError
        """
    )


def test_change_lost_to_a_harmless_write_is_tried_again() -> None:
    changing().play(
        """
        >> conflict
        << read metadata
        >> metadata 2 OPEN 0:b1,b2,b3
        << pick for b3 of b1 b2 b3
        >> picked b5
        << write over 2: OPEN 0:b1,b2,b5
        """
    )


def test_change_whose_answer_was_lost_is_found_done() -> None:
    changing().play(
        """
        >> b1 add 0 ok
        >> b2 add 0 ok
        >> unavailable
        << read metadata
        >> metadata 2 OPEN 0:b1,b2,b4
        << add 0 lac -1 length 1 to b4
        << acked 0..0
        """
    )


def test_change_that_the_store_refuses() -> None:
    changing().play(
        """
        >> unavailable
        << read metadata
        >> metadata 1 OPEN 0:b1,b2,b3
        << failed MetadataUnavailableError
        """
    )


def test_change_with_the_store_away() -> None:
    changing().play(
        """
        >> unavailable
        << read metadata
        >> unavailable
        << failed MetadataUnavailableError
        """
    )


# ---- close ----------------------------------------------------------------------------------------


def test_close_of_an_empty_ledger() -> None:
    play(
        writer(),
        """
        >> close
        << write over 1: CLOSED at -1 length 0 0:b1,b2,b3
        >> written 2
        << closed: CLOSED at -1 length 0 0:b1,b2,b3
        >> close
        << closed: CLOSED at -1 length 0 0:b1,b2,b3
        """,
    )


def test_close_waits_for_what_is_outstanding() -> None:
    machine = writer()
    play(
        machine,
        """
        >> append abc
        << add 0 lac -1 length 3 to b1 b2 b3
        >> close
        >> b1 add 0 ok
        >> b2 add 0 ok
        << acked 0..0
        << write over 1: CLOSED at 0 length 3 0:b1,b2,b3
        >> b3 add 0 lost
        >> written 2
        << closed: CLOSED at 0 length 3 0:b1,b2,b3
        """,
    )
    with pytest.raises(HandleClosedError):
        machine.handle(Append((b"late",)))


def test_close_after_a_failure_ends_at_the_lac() -> None:
    play(
        writer(2, 2, 2),
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2
        >> append b
        << add 1 lac -1 length 2 to b2 b1
        >> b1 add 0 ok
        >> b2 add 0 ok
        << acked 0..0
        >> close
        >> b1 add 1 lost
        << pick for b1 of b1 b2
        >> picked none
        << failed AddFailedError
        << write over 1: CLOSED at 0 length 1 0:b1,b2
        >> written 2
        << closed: CLOSED at 0 length 1 0:b1,b2
        """,
    )


CLOSING = """
    >> append a
    << add 0 lac -1 length 1 to b1 b2 b3
    >> b1 add 0 ok
    >> b2 add 0 ok
    << acked 0..0
    >> close
    << write over 1: CLOSED at 0 length 1 0:b1,b2,b3
    >> conflict
    << read metadata
    """


def close_lost() -> Player:
    player = Player(writer())
    player.play(CLOSING)
    return player


def test_close_lost_case_1_another_closed_at_the_same_end() -> None:
    close_lost().play(
        """
        >> metadata 3 CLOSED at 0 length 1 0:b1,b2,b3
        << closed: CLOSED at 0 length 1 0:b1,b2,b3
        """
    )


@pytest.mark.parametrize("end", ["at 1 length 2", "at 0 length 9"])
def test_close_lost_case_2_another_closed_at_another_end(end: str) -> None:
    close_lost().play(
        f"""
        >> metadata 3 CLOSED {end} 0:b1,b2,b3
        << close failed LedgerClosedError
        """
    )


def test_close_lost_case_3_in_recovery() -> None:
    close_lost().play(
        """
        >> metadata 2 IN_RECOVERY 0:b1,b2,b3
        << close failed LedgerFencedError
        """
    )


def test_close_lost_case_4_still_open() -> None:
    close_lost().play(
        """
        >> metadata 2 OPEN 0:b1,b2,b6
        << write over 2: CLOSED at 0 length 1 0:b1,b2,b6
        >> written 3
        << closed: CLOSED at 0 length 1 0:b1,b2,b6
        """
    )


def test_close_can_be_tried_again_when_the_store_is_back() -> None:
    play(
        writer(),
        """
        >> close
        << write over 1: CLOSED at -1 length 0 0:b1,b2,b3
        >> unavailable
        << read metadata
        >> unavailable
        << close failed MetadataUnavailableError
        >> close
        << write over 1: CLOSED at -1 length 0 0:b1,b2,b3
        >> conflict
        << read metadata
        >> metadata 2 CLOSED at -1 length 0 0:b1,b2,b3
        << closed: CLOSED at -1 length 0 0:b1,b2,b3
        """,
    )


def test_a_writer_fenced_by_a_bookie_alone_may_still_close() -> None:
    """A bookie that came back from a crash fences its ledgers though nobody recovers them."""
    play(
        writer(),
        """
        >> append a
        << add 0 lac -1 length 1 to b1 b2 b3
        >> b1 add 0 EFENCED
        << failed LedgerFencedError
        >> close
        << write over 1: CLOSED at -1 length 0 0:b1,b2,b3
        >> written 2
        << closed: CLOSED at -1 length 0 0:b1,b2,b3
        """,
    )
