"""Reading one entry, and the LAC of a ledger, as playbooks."""

from __future__ import annotations

import pytest

from bkbox.base.ids import EntryId
from bkbox.protocol.lac import LacReader
from bkbox.protocol.reader import EntryReader
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from tests.protocol.notation import ledger
from tests.protocol.playbook import Player, play


def reader(entry: int = 1, metadata: LedgerMetadata | None = None) -> EntryReader:
    return EntryReader(metadata or ledger(3, 3, 2), 4, EntryId(entry))


def test_the_first_bookie_of_the_write_set_has_it() -> None:
    play(
        reader(),
        """
        >> start
        << read 1 from b2
        >> b2 read 1 ok lac 0 length 2 b
        << found 1 lac 0 length 2 b
        """,
    )


@pytest.mark.parametrize("answer", ["ENOENTRY", "EIO", "lost", "rotten", "EUA"])
def test_the_next_one_is_asked_after_any_other_answer(answer: str) -> None:
    play(
        reader(),
        f"""
        >> start
        << read 1 from b2
        >> b2 read 1 {answer}
        << read 1 from b3
        >> b3 read 1 ok lac 0 length 2 b
        << found 1 lac 0 length 2 b
        """,
    )


def test_absent_only_if_all_say_so_and_the_metadata_is_fresh() -> None:
    play(
        reader(),
        """
        >> start
        << read 1 from b2
        >> b2 read 1 ENOENTRY
        << read 1 from b3
        >> b3 read 1 ENOLEDGER
        << read 1 from b1
        >> b1 read 1 ENOENTRY
        << read metadata
        >> metadata 4 OPEN 0:b1,b2,b3
        << failed NoSuchEntryError
        """,
    )


def test_unknown_if_one_cannot_say() -> None:
    play(
        reader(),
        """
        >> start
        << read 1 from b2
        >> b2 read 1 ENOENTRY
        << read 1 from b3
        >> b3 read 1 EUNKNOWNLEDGERSTATE
        << read 1 from b1
        >> b1 read 1 ENOENTRY
        << read metadata
        >> metadata 4 OPEN 0:b1,b2,b3
        << failed UnknownEntryError
        """,
    )


def test_the_error_names_the_bookies_and_their_answers() -> None:
    machine = reader(0, ledger(2, 2, 2))
    player = Player(machine)
    player.play(
        """
        >> start
        << read 0 from b1
        >> b1 read 0 ENOENTRY
        << read 0 from b2
        >> b2 read 0 lost
        << read metadata
        """
    )
    (failed,) = machine.handle(player._event("metadata 4 OPEN 0:b1,b2"))
    assert str(failed.error) == (
        "entry 0 of ledger 7 cannot be read: b1 answered ENOENTRY, b2: connection lost"
    )


def test_an_entry_that_moved_is_found_where_it_is_now() -> None:
    play(
        reader(1, ledger(2, 2, 2)),
        """
        >> start
        << read 1 from b2
        >> b2 read 1 ENOENTRY
        << read 1 from b1
        >> b1 read 1 ENOENTRY
        << read metadata
        >> metadata 5 OPEN 0:b1,b2 1:b3,b4
        << read 1 from b4
        >> b4 read 1 ok lac 0 length 2 b
        << found 1 lac 0 length 2 b
        """,
    )


def test_past_the_end_of_a_closed_ledger() -> None:
    closed = ledger(2, 2, 2, state=LedgerState.CLOSED, last_entry=0, length=1)
    play(reader(1, closed), ">> start\n<< failed NoSuchEntryError")


def test_speculation_asks_on_and_a_slow_answer_counts() -> None:
    play(
        reader(),
        """
        >> start
        << read 1 from b2
        >> speculate
        << read 1 from b3
        >> b3 read 1 ENOENTRY
        << read 1 from b1
        >> speculate
        >> b2 read 1 ok lac 0 length 2 b
        << found 1 lac 0 length 2 b
        >> b1 read 1 ok lac 0 length 2 b
        """,
    )


def test_the_store_away_is_its_own_error() -> None:
    play(
        reader(0, ledger(1, 1, 1)),
        """
        >> start
        << read 0 from b1
        >> b1 read 0 lost
        << read metadata
        >> unavailable
        << failed MetadataUnavailableError
        """,
    )


# ---- LAC ------------------------------------------------------------------------------------------


def test_lac_is_the_highest_of_enough_bookies() -> None:
    play(
        LacReader(ledger(3, 3, 2)),
        """
        >> start
        << read -1 from b1
        << read -1 from b2
        << read -1 from b3
        >> b1 read -1 ok id 5 lac 4 length 6 x
        >> b2 read -1 ok id 7 lac 3 length 8 x
        << lac 4
        >> b3 read -1 ok id 9 lac 8 length 9 x
        """,
    )


def test_lac_is_never_below_the_last_fragment() -> None:
    play(
        LacReader(ledger(2, 2, 2, "0:b1,b2 6:b3,b2")),
        """
        >> start
        << read -1 from b3
        << read -1 from b2
        >> b3 read -1 ENOLEDGER
        << lac 5
        """,
    )


@pytest.mark.parametrize("answer", ["rotten", "EUNKNOWNLEDGERSTATE", "lost", "timeout", "EIO"])
def test_unknown_answers_are_not_heard(answer: str) -> None:
    play(
        LacReader(ledger(3, 3, 2)),
        f"""
        >> start
        << read -1 from b1
        << read -1 from b2
        << read -1 from b3
        >> b1 read -1 {answer}
        >> b2 read -1 ENOENTRY
        >> b3 read -1 {answer}
        << failed UnknownEntryError
        """,
    )


def test_striped_coverage_asks_more_than_the_ack_quorum_suggests() -> None:
    """E 4, WQ 2, AQ 2: b1 and b3 unheard can acknowledge nothing, b1 and b2 can."""
    play(
        LacReader(ledger(4, 2, 2)),
        """
        >> start
        << read -1 from b1
        << read -1 from b2
        << read -1 from b3
        << read -1 from b4
        >> b3 read -1 ENOENTRY
        >> b4 read -1 ENOENTRY
        >> b1 read -1 lost
        >> b2 read -1 ok id 1 lac 0 length 1 x
        << lac 0
        """,
    )


def test_a_fence_with_the_wrong_password() -> None:
    play(
        LacReader(ledger(2, 2, 1), fence=True),
        """
        >> start
        << fencing read -1 from b1
        << fencing read -1 from b2
        >> b1 read -1 EUA
        << failed UnauthorizedError
        """,
    )


def test_the_explicit_lac_is_the_highest_that_a_covering_set_proves() -> None:
    play(
        LacReader(ledger(3, 3, 2), explicit=True),
        """
        >> start
        << read lac from b1
        << read lac from b2
        << read lac from b3
        >> b3 lac 4 EIO
        >> b1 lac 2 ok
        >> b2 lac none ENOENTRY
        << lac 4
        """,
    )


def test_the_explicit_lac_is_unknown_where_too_few_can_tell() -> None:
    play(
        LacReader(ledger(3, 3, 2), explicit=True),
        """
        >> start
        << read lac from b1
        << read lac from b2
        << read lac from b3
        >> b1 lac none EUNKNOWNLEDGERSTATE
        >> b2 lac none rotten
        << failed UnknownEntryError
        """,
    )
