"""Waiting for an entry to be confirmed, as playbooks."""

from __future__ import annotations

import pytest

from bkbox.base.ids import EntryId
from bkbox.protocol.longpoll import LongPoll
from tests.protocol.notation import ledger
from tests.protocol.playbook import play


def poll(entry: int = 2, ensemble_size: int = 3, write_quorum: int = 3) -> LongPoll:
    return LongPoll(ledger(ensemble_size, write_quorum, 2), EntryId(entry))


def test_the_bookie_that_the_next_entry_goes_to_first_brings_the_entry() -> None:
    play(
        poll(2),
        """
        >> start
        << poll b1 above 1, wait
        >> b1 poll ok lac 3 length 9 hello
        << lac 3, 2 lac 3 length 9 hello
        """,
    )
    play(
        poll(7, 4, 2),
        """
        >> start
        << poll b1 above 6, wait
        >> b1 poll ok lac 7
        << lac 7, nothing
        """,
    )


@pytest.mark.parametrize("answer", ["EIO", "lost", "timeout", "rotten", "EUNKNOWNLEDGERSTATE"])
def test_the_next_one_waits_where_one_fails(answer: str) -> None:
    play(
        poll(),
        f"""
        >> start
        << poll b1 above 1, wait
        >> b1 poll {answer}
        << poll b2 above 1, wait
        >> b2 poll ok lac 2 length 9 hello
        << lac 2, 2 lac 2 length 9 hello
        """,
    )


def test_time_is_up_and_another_one_knows_better() -> None:
    play(
        poll(),
        """
        >> start
        << poll b1 above 1, wait
        >> b1 poll ok lac 0
        << poll b2 above 1, answer at once
        << poll b3 above 1, answer at once
        >> b3 poll ok lac 2 length 9 hello
        << lac 2, 2 lac 2 length 9 hello
        >> b2 poll ok lac 0
        """,
    )


@pytest.mark.parametrize("answer", ["ok lac 1", "ENOENTRY"])
def test_nothing_new_once_the_others_cannot_have_confirmed_it(answer: str) -> None:
    play(
        poll(),
        f"""
        >> start
        << poll b1 above 1, wait
        >> b1 poll {answer}
        << poll b2 above 1, answer at once
        << poll b3 above 1, answer at once
        >> b3 poll EIO
        >> b2 poll ok lac 1
        << lac 1, nothing
        """,
    )


def test_who_does_not_know_the_ledger_does_not_end_the_wait() -> None:
    play(
        poll(),
        """
        >> start
        << poll b1 above 1, wait
        >> b1 poll ENOLEDGER
        << poll b2 above 1, wait
        >> b2 poll ENOLEDGER
        << lac -1, nothing
        """,
    )


def test_a_slow_one_is_not_waited_for_alone() -> None:
    play(
        poll(),
        """
        >> start
        << poll b1 above 1, wait
        >> speculate
        << poll b2 above 1, wait
        >> b2 poll ok lac 1
        << poll b3 above 1, answer at once
        >> speculate
        >> b1 poll ok lac 5 length 9 hello
        << lac 5, 2 lac 5 length 9 hello
        """,
    )


def test_too_few_can_say_but_one_did() -> None:
    play(
        poll(),
        """
        >> start
        << poll b1 above 1, wait
        >> b1 poll lost
        << poll b2 above 1, wait
        >> b2 poll ok lac 0
        << poll b3 above 1, answer at once
        >> b3 poll lost
        << lac 0, nothing
        """,
    )


def test_nobody_can_say() -> None:
    play(
        poll(),
        """
        >> start
        << poll b1 above 1, wait
        >> b1 poll lost
        << poll b2 above 1, wait
        >> b2 poll EIO
        << poll b3 above 1, wait
        >> b3 poll timeout
        << failed UnknownEntryError
        """,
    )
