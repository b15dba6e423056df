"""What is missing of a ledger, against a count of every single copy."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkbox.base.ids import BookieId
from bkbox.protocol.audit import (
    BookieReport,
    Findings,
    NoReport,
    audit,
    final_fragments,
    live_copies,
)
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from tests.protocol.ledgercopies import A, B, C, D, copies_by_entry, ledger, ledgers, runs


def brute_force(metadata: LedgerMetadata, said: Mapping[BookieId, BookieReport]) -> Findings:
    members = metadata.bookies()
    answers = {each: said.get(each, NoReport.SILENT) for each in members}
    has: dict[BookieId, set[int]] = {}
    for bookie, answer in answers.items():
        if not isinstance(answer, NoReport):
            has[bookie] = {n for first, last in answer for n in range(first, last + 1)}
    lacking: dict[BookieId, set[int]] = {}
    known, possible = [], []
    for entry, holders in copies_by_entry(metadata).items():
        sure = [each for each in holders if each in has and entry in has[each]]
        maybe = [each for each in holders if answers[each] is NoReport.SILENT]
        known.append(len(sure))
        possible.append(len(sure) + len(maybe))
        for each in holders:
            if each in has and entry not in has[each]:
                lacking.setdefault(each, set()).add(entry)
    return Findings(
        frozenset(each for each in members if answers[each] is NoReport.UNREGISTERED),
        frozenset(each for each in members if answers[each] is NoReport.SILENT),
        {each: tuple(runs(entries)) for each, entries in lacking.items()},
        min(known, default=None),
        min(possible, default=None),
    )


def test_who_does_not_answer_lacks_nothing() -> None:
    metadata = ledger("abc", last=9)
    silent = audit(metadata, {A: [(0, 9)], B: NoReport.SILENT})
    assert silent == Findings(frozenset(), frozenset({B, C}), {}, 1, 3)
    assert silent.is_whole
    assert silent.suspects == ()


def test_who_has_nothing_lacks_everything_and_who_is_gone_has_to_be_replaced() -> None:
    metadata = ledger("abc", last=9)
    found = audit(metadata, {A: [(0, 3), (5, 20)], B: [], C: NoReport.UNREGISTERED})
    assert found == Findings(
        frozenset({C}), frozenset(), {A: (range(4, 5),), B: (range(10),)}, 0, 0
    )
    assert not found.is_whole
    assert found.suspects == (A, B, C)


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_the_last_fragment_of_a_ledger_without_an_end_is_not_judged(state: LedgerState) -> None:
    metadata = ledger("abc", "abd", state=state)
    found = audit(metadata, {A: [(0, 3)], B: [(0, 2)], C: [(0, 3)], D: []})
    assert found.lacking == {B: (range(3, 4),)}
    assert list(final_fragments(metadata)) == [(0, range(4))]
    assert audit(ledger("abc", state=state), dict.fromkeys((A, B, C), ())).known is None


def test_a_fragment_past_the_end_of_a_closed_ledger_has_no_entries() -> None:
    metadata = ledger("abc", "abd", "abc", last=5)
    assert list(final_fragments(metadata)) == [(0, range(4)), (1, range(4, 6)), (2, range(8, 8))]
    empty = ledger("abc", last=-1)
    found = audit(empty, {A: [], B: [], C: NoReport.UNREGISTERED})
    assert (found.known, found.possible, found.lacking, found.is_whole) == (None, None, {}, False)


@pytest.mark.parametrize("ensembles", [("abc",), ("abc", "abd"), ("abcd",), ("abcd", "dcba")])
@pytest.mark.parametrize("wq", [1, 2, 3])
def test_every_answer_of_every_bookie(ensembles: tuple[str, ...], wq: int) -> None:
    """Each bookie is gone, silent, has all, nothing, only the even entries, or the first half."""
    answers: list[BookieReport] = [
        NoReport.UNREGISTERED,
        NoReport.SILENT,
        [(0, 100)],
        [],
        [(n, n) for n in range(0, 12, 2)],
        [(0, 4)],
    ]
    for state, last in ((LedgerState.CLOSED, 6), (LedgerState.OPEN, -1)):
        metadata = ledger(*ensembles, wq=wq, state=state, last=last)
        members = sorted(metadata.bookies())
        some = answers if len(members) < 4 else answers[:5]
        for chosen in itertools.product(some, repeat=len(members)):
            said = dict(zip(members, chosen, strict=True))
            assert audit(metadata, said) == brute_force(metadata, said)


def test_fewest_live_copies() -> None:
    striped = ledger("abcd", wq=2, state=LedgerState.OPEN)
    assert live_copies(striped, []) == 2
    assert live_copies(striped, [A]) == 1
    assert live_copies(striped, [A, C]) == 1
    assert live_copies(striped, [A, B]) == 0
    assert live_copies(ledger("abc", "abd", state=LedgerState.OPEN), [D]) == 2
    assert live_copies(ledger("abc", "abd", last=5), [C, D]) == 2


entry_runs = st.sets(st.integers(0, 40)).map(
    lambda entries: [(part.start, part.stop - 1) for part in runs(entries)]
)
answers = st.one_of(st.sampled_from(NoReport), entry_runs)


@pytest.mark.parametrize("examples", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_any_ledger(examples: int) -> None:
    @settings(max_examples=examples)
    @given(ledgers(), st.dictionaries(st.sampled_from((A, B, C, D)), answers))
    def check(metadata: LedgerMetadata, said: dict[BookieId, BookieReport]) -> None:
        assert audit(metadata, said) == brute_force(metadata, said)

    check()
