"""Recovery, as playbooks: take over, fence, read forward, write back, close."""

from __future__ import annotations

import pytest

from bkbox.protocol.recovery import LedgerRecovery
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from tests.protocol.notation import ledger
from tests.protocol.playbook import Player, play

FENCE = """
    >> start
    << write over 1: IN_RECOVERY 0:b1,b2,b3
    >> written 2
    << fencing read -1 from b1
    << fencing read -1 from b2
    << fencing read -1 from b3
    """


def recovery(metadata: LedgerMetadata | None = None) -> LedgerRecovery:
    return LedgerRecovery(metadata or ledger(3, 3, 2), version=1)


def fenced(metadata: LedgerMetadata | None = None) -> Player:
    player = Player(recovery(metadata))
    player.play(FENCE)
    return player


EMPTY = """
    >> b1 read -1 ENOENTRY
    >> b2 read -1 ENOLEDGER
    << fencing read 0 from b1
    << fencing read 0 from b2
    << fencing read 0 from b3
    """

# ---- take over ------------------------------------------------------------------------------------


def test_a_closed_ledger_needs_nothing() -> None:
    closed = ledger(3, 3, 2, state=LedgerState.CLOSED, last_entry=4, length=9)
    play(recovery(closed), ">> start\n<< recovered: CLOSED at 4 length 9 0:b1,b2,b3")


def test_in_recovery_already_is_not_written_again() -> None:
    play(
        recovery(ledger(2, 2, 2, state=LedgerState.IN_RECOVERY)),
        """
        >> start
        << fencing read -1 from b1
        << fencing read -1 from b2
        """,
    )


def test_take_over_lost_to_an_ensemble_change() -> None:
    play(
        recovery(ledger(2, 2, 2)),
        """
        >> start
        << write over 1: IN_RECOVERY 0:b1,b2
        >> conflict
        << read metadata
        >> metadata 2 OPEN 0:b1,b2 3:b1,b4
        << write over 2: IN_RECOVERY 0:b1,b2 3:b1,b4
        >> written 3
        << fencing read -1 from b1
        << fencing read -1 from b4
        >> b1 read -1 ok id 2 lac 1 length 3 c
        << fencing read 3 from b4
        << fencing read 3 from b1
        >> b4 read 3 ok lac 2 length 4 d
        << recovery add 3 lac 2 length 4 to b4 b1
        << fencing read 4 from b1
        << fencing read 4 from b4
        >> b1 add 3 ok
        >> b4 add 3 ok
        >> b1 read 4 ENOENTRY
        << write over 3: CLOSED at 3 length 4 0:b1,b2 3:b1,b4
        """,
    )


def test_take_over_whose_answer_was_lost() -> None:
    play(
        recovery(ledger(1, 1, 1)),
        """
        >> start
        << write over 1: IN_RECOVERY 0:b1
        >> unavailable
        << read metadata
        >> metadata 2 IN_RECOVERY 0:b1
        << fencing read -1 from b1
        """,
    )


def test_take_over_lost_to_a_close() -> None:
    play(
        recovery(ledger(1, 1, 1)),
        """
        >> start
        << write over 1: IN_RECOVERY 0:b1
        >> conflict
        << read metadata
        >> metadata 2 CLOSED at 3 length 4 0:b1
        << recovered: CLOSED at 3 length 4 0:b1
        """,
    )


def test_a_store_that_refuses_the_take_over() -> None:
    play(
        recovery(ledger(1, 1, 1)),
        """
        >> start
        << write over 1: IN_RECOVERY 0:b1
        >> unavailable
        << read metadata
        >> metadata 1 OPEN 0:b1
        << failed MetadataUnavailableError
        """,
    )


def test_a_store_that_cannot_be_read_after_a_lost_race() -> None:
    play(
        recovery(ledger(1, 1, 1)),
        """
        >> start
        << write over 1: IN_RECOVERY 0:b1
        >> conflict
        << read metadata
        >> unavailable
        << failed MetadataUnavailableError
        """,
    )


# ---- fence ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["EUNKNOWNLEDGERSTATE", "EIO", "lost", "rotten"])
def test_stuck_when_an_ack_quorum_cannot_say(answer: str) -> None:
    fenced().play(
        f"""
        >> b1 read -1 {answer}
        >> b2 read -1 {answer}
        << failed RecoveryAbortedError
        """
    )


def test_the_abort_names_the_bookies_and_their_answers() -> None:
    player = fenced()
    player.machine.handle(player._event("b1 read -1 EIO"))
    (failed,) = player.machine.handle(player._event("b3 read -1 lost"))
    assert str(failed.error) == (
        "ledger 7: recovery stopped while fencing, nothing was closed: "
        "b1 answered EIO, b2: nothing yet, b3: connection lost"
    )


# ---- read forward and close -----------------------------------------------------------------------


def test_an_empty_ledger() -> None:
    player = fenced()
    player.play(EMPTY)
    player.play(
        """
        >> b1 read 0 ENOENTRY
        >> b2 read 0 ENOENTRY
        << write over 2: CLOSED at -1 length 0 0:b1,b2,b3
        >> written 3
        << recovered: CLOSED at -1 length 0 0:b1,b2,b3
        >> b3 read 0 ENOENTRY
        """
    )


def test_entries_above_the_lac_are_written_back_as_they_were() -> None:
    fenced().play(
        """
        >> b1 read -1 ok id 2 lac 0 length 6 cc
        >> b2 read -1 ok id 1 lac 0 length 4 bb
        << fencing read 1 from b2
        << fencing read 1 from b3
        << fencing read 1 from b1
        >> b2 read 1 ok lac 0 length 4 bb
        << recovery add 1 lac 0 length 4 to b2 b3 b1
        << fencing read 2 from b3
        << fencing read 2 from b1
        << fencing read 2 from b2
        >> b3 read 1 ENOENTRY
        >> b3 read 2 ENOENTRY
        >> b1 read 2 ok lac 0 length 6 cc
        << recovery add 2 lac 0 length 6 to b3 b1 b2
        << fencing read 3 from b1
        << fencing read 3 from b2
        << fencing read 3 from b3
        << fencing read 4 from b2
        << fencing read 4 from b3
        << fencing read 4 from b1
        >> b1 add 2 ok
        >> b2 add 2 ok
        >> b1 read 3 ENOENTRY
        >> b2 read 3 ENOENTRY
        >> b2 add 1 ok
        >> b3 add 1 ok
        << write over 2: CLOSED at 2 length 6 0:b1,b2,b3
        >> written 3
        << recovered: CLOSED at 2 length 6 0:b1,b2,b3
        """
    )


def test_the_end_at_the_lac_takes_its_length_from_that_entry() -> None:
    """The last entry of b1 lies above the LAC and its length counts one that may be missing."""
    fenced().play(
        """
        >> b1 read -1 ok id 3 lac 1 length 9 d
        >> b2 read -1 ENOENTRY
        << fencing read 2 from b3
        << fencing read 2 from b1
        << fencing read 2 from b2
        >> b1 read 2 ENOENTRY
        >> b2 read 2 ENOENTRY
        << fencing read 1 from b2
        << fencing read 1 from b3
        << fencing read 1 from b1
        >> b2 read 1 ENOENTRY
        >> b3 read 2 ENOENTRY
        >> b1 read 1 ok lac 0 length 5 bb
        << write over 2: CLOSED at 1 length 5 0:b1,b2,b3
        """
    )


def test_an_acknowledged_entry_that_nobody_returns_stops_the_recovery() -> None:
    fenced().play(
        """
        >> b1 read -1 ok id 1 lac 0 length 9 d
        >> b2 read -1 ENOENTRY
        << fencing read 1 from b2
        << fencing read 1 from b3
        << fencing read 1 from b1
        >> b3 read 1 ENOENTRY
        >> b2 read 1 ENOENTRY
        << fencing read 0 from b1
        << fencing read 0 from b2
        << fencing read 0 from b3
        >> b1 read 0 rotten
        >> b2 read 0 ENOENTRY
        >> b3 read 0 ENOENTRY
        << failed RecoveryAbortedError
        """
    )


@pytest.mark.parametrize("answer", ["EUNKNOWNLEDGERSTATE", "EIO", "lost", "rotten", "timeout"])
def test_one_negative_and_unknowns_close_nothing(answer: str) -> None:
    player = fenced()
    player.play(EMPTY)
    player.play(
        f"""
        >> b1 read 0 {answer}
        >> b2 read 0 ENOENTRY
        >> b3 read 0 {answer}
        << failed RecoveryAbortedError
        """
    )


def test_negatives_at_the_threshold_suffice_beside_an_unknown() -> None:
    player = fenced()
    player.play(EMPTY)
    player.play(
        """
        >> b1 read 0 EUNKNOWNLEDGERSTATE
        >> b2 read 0 ENOENTRY
        >> b3 read 0 ENOENTRY
        << write over 2: CLOSED at -1 length 0 0:b1,b2,b3
        """
    )


# ---- write back -----------------------------------------------------------------------------------

FOUND = """
    >> b3 read 0 ok lac -1 length 1 a
    << recovery add 0 lac -1 length 1 to b1 b2 b3
    << fencing read 1 from b2
    << fencing read 1 from b3
    << fencing read 1 from b1
    """


def found() -> Player:
    player = fenced()
    player.play(EMPTY)
    player.play(FOUND)
    return player


def test_a_replacement_is_written_with_the_close_and_never_asked() -> None:
    found().play(
        """
        >> b1 add 0 lost
        << pick for b1 of b1 b2 b3
        >> picked b4
        << recovery add 0 lac -1 length 1 to b4
        >> b2 read 1 ENOENTRY
        >> b3 read 1 ok lac 0 length 2 b
        << recovery add 1 lac 0 length 2 to b2 b3 b4
        << fencing read 2 from b3
        << fencing read 2 from b1
        << fencing read 2 from b2
        << fencing read 3 from b1
        << fencing read 3 from b2
        << fencing read 3 from b3
        >> b4 add 0 ok
        >> b3 add 0 ok
        >> b4 add 1 ok
        >> b3 add 1 ok
        >> b3 read 2 ENOENTRY
        >> b2 read 2 ENOENTRY
        << write over 2: CLOSED at 1 length 2 0:b4,b2,b3
        """
    )


def test_a_replacement_counts_from_what_is_written_back() -> None:
    found().play(
        """
        >> b1 add 0 ok
        >> b2 add 0 ok
        >> b3 read 1 ok lac 0 length 2 b
        << recovery add 1 lac 0 length 2 to b2 b3 b1
        << fencing read 2 from b3
        << fencing read 2 from b1
        << fencing read 2 from b2
        << fencing read 3 from b1
        << fencing read 3 from b2
        << fencing read 3 from b3
        >> b3 add 1 EIO
        << pick for b3 of b1 b2 b3
        >> picked b5
        << recovery add 1 lac 0 length 2 to b5
        >> b5 add 1 ok
        >> b1 add 1 ok
        >> b1 read 2 ENOENTRY
        >> b2 read 2 ENOENTRY
        << write over 2: CLOSED at 1 length 2 0:b1,b2,b3 1:b1,b2,b5
        """
    )


def test_what_is_read_ahead_is_judged_in_order() -> None:
    """Entry 3 is there and 2 is not: 3 was never acknowledged, and its answer may come first."""
    found().play(
        """
        >> b1 add 0 ok
        >> b2 add 0 ok
        >> b3 read 1 ok lac 0 length 2 b
        << recovery add 1 lac 0 length 2 to b2 b3 b1
        << fencing read 2 from b3
        << fencing read 2 from b1
        << fencing read 2 from b2
        << fencing read 3 from b1
        << fencing read 3 from b2
        << fencing read 3 from b3
        >> b1 read 3 ok lac 0 length 4 d
        >> b2 read 3 ENOENTRY
        >> b2 add 1 ok
        >> b3 add 1 ok
        >> b1 read 2 ENOENTRY
        >> b2 read 2 ENOENTRY
        << write over 2: CLOSED at 1 length 2 0:b1,b2,b3
        """
    )


def test_an_unknown_entry_behind_the_end_stops_nothing() -> None:
    found().play(
        """
        >> b1 add 0 ok
        >> b2 add 0 ok
        >> b3 read 1 ok lac 0 length 2 b
        << recovery add 1 lac 0 length 2 to b2 b3 b1
        << fencing read 2 from b3
        << fencing read 2 from b1
        << fencing read 2 from b2
        << fencing read 3 from b1
        << fencing read 3 from b2
        << fencing read 3 from b3
        >> b1 read 3 EIO
        >> b2 read 3 EIO
        >> b3 read 3 EIO
        >> b2 add 1 ok
        >> b3 add 1 ok
        >> b1 read 2 ENOENTRY
        >> b2 read 2 ENOENTRY
        << write over 2: CLOSED at 1 length 2 0:b1,b2,b3
        """
    )


def test_no_bookie_left_to_write_back_to() -> None:
    found().play(
        """
        >> b1 add 0 lost
        << pick for b1 of b1 b2 b3
        >> picked none
        >> b2 add 0 lost
        << pick for b1 b2 of b1 b2 b3
        >> picked none
        << failed RecoveryAbortedError
        """
    )


def test_written_back_without_a_spare_to_the_rest() -> None:
    found().play(
        """
        >> b1 add 0 lost
        << pick for b1 of b1 b2 b3
        >> picked none
        >> b2 read 1 ENOENTRY
        >> b3 read 1 ENOENTRY
        >> b2 add 0 ok
        >> b3 add 0 ok
        << write over 2: CLOSED at 0 length 1 0:b1,b2,b3
        """
    )


# ---- the race to close ----------------------------------------------------------------------------


def closing() -> Player:
    player = fenced()
    player.play(EMPTY)
    player.play(
        """
        >> b1 read 0 ENOENTRY
        >> b3 read 0 ENOENTRY
        << write over 2: CLOSED at -1 length 0 0:b1,b2,b3
        >> conflict
        << read metadata
        """
    )
    return player


def test_the_winner_of_the_race_decides() -> None:
    closing().play(
        """
        >> metadata 4 CLOSED at 3 length 8 0:b1,b2,b6
        << recovered: CLOSED at 3 length 8 0:b1,b2,b6
        """
    )


def test_a_repaired_fragment_does_not_stop_the_close() -> None:
    player = Player(recovery(ledger(1, 1, 1, "0:b1 4:b2")))
    player.play(
        """
        >> start
        << write over 1: IN_RECOVERY 0:b1 4:b2
        >> written 2
        << fencing read -1 from b2
        >> b2 read -1 ok id 4 lac 3 length 5 e
        << fencing read 4 from b2
        >> b2 read 4 ok lac 3 length 5 e
        << recovery add 4 lac 3 length 5 to b2
        << fencing read 5 from b2
        >> b2 add 4 ok
        >> b2 read 5 ENOENTRY
        << write over 2: CLOSED at 4 length 5 0:b1 4:b2
        >> conflict
        << read metadata
        >> metadata 3 IN_RECOVERY 0:b9 4:b2
        << write over 3: CLOSED at 4 length 5 0:b9 4:b2
        """
    )


def test_a_last_fragment_that_changed_stops_it() -> None:
    closing().play(
        """
        >> metadata 4 IN_RECOVERY 0:b1,b2,b9
        << failed RecoveryAbortedError
        """
    )


def test_a_close_whose_answer_was_lost() -> None:
    player = fenced()
    player.play(EMPTY)
    player.play(
        """
        >> b1 read 0 ENOENTRY
        >> b3 read 0 ENOENTRY
        << write over 2: CLOSED at -1 length 0 0:b1,b2,b3
        >> unavailable
        << read metadata
        >> metadata 3 CLOSED at -1 length 0 0:b1,b2,b3
        << recovered: CLOSED at -1 length 0 0:b1,b2,b3
        """
    )
