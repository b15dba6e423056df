"""What a worker copies where, and the metadata that it writes: carried out on a cluster of sets."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bkbox.base.ids import BookieId, EntryId
from bkbox.protocol.audit import BookieReport, NoReport, audit
from bkbox.protocol.rereplication import (
    Transfer,
    must_be_recovered,
    repairs,
    sources,
    transfers,
    with_replaced,
)
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from tests.protocol.ledgercopies import A, B, C, D, copies_by_entry, ledger, ledgers, runs

E, F = BookieId("e:5"), BookieId("f:6")
SPARES = [BookieId(f"spare{n}:1") for n in range(4)]


def test_a_lost_bookie_is_replaced_by_one_that_gets_its_entries_alone() -> None:
    metadata = ledger("abcd", wq=2, last=3)
    (repair,) = repairs(metadata, [B], {})
    assert (repair.lost, repair.refill) == ((1,), {})
    assert list(transfers(repair, 2, {1: E})) == [
        Transfer(range(1), (E,)),
        Transfer(range(1, 2), (E,)),
    ]
    assert sources(repair, 2, 0) == (A, B)
    assert sources(repair, 2, 1) == (C, B), "who is gone is asked last"
    written = with_replaced(metadata, repair, {1: E})
    assert written is not None
    assert written.fragments[0].ensemble == (A, E, C, D)


def test_where_everybody_holds_everything_entries_go_in_runs() -> None:
    metadata = ledger("abc", last=99, size=100)
    (repair,) = repairs(metadata, [B], {A: [range(10, 20)]})
    assert list(transfers(repair, 3, {1: E})) == [
        Transfer(range(10), (E,)),
        Transfer(range(10, 20), (E, A)),
        Transfer(range(20, 100), (E,)),
    ]
    assert list(transfers(repair, 3, {})) == [Transfer(range(10, 20), (A,))]


def test_what_is_whole_needs_nothing_and_an_empty_fragment_only_its_name() -> None:
    assert repairs(ledger("abc", last=5), [], {}) == []
    metadata = ledger("abc", "abd", last=3)
    (repair,) = repairs(metadata, [D], {})
    assert list(transfers(repair, 3, {2: E})) == []
    written = with_replaced(metadata, repair, {2: E})
    assert written is not None
    assert [each.ensemble for each in written.fragments] == [(A, B, C), (A, B, E)]


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_the_last_fragment_of_a_ledger_without_an_end_is_recovered_and_never_copied(
    state: LedgerState,
) -> None:
    metadata = ledger("abc", "abd", state=state)
    assert must_be_recovered(metadata, [D])
    assert not must_be_recovered(metadata, [C])
    assert repairs(metadata, [D], {}) == []
    assert [repair.entries for repair in repairs(metadata, [A], {})] == [range(4)]
    assert not must_be_recovered(ledger("abc", "abd", last=5), [D])


def test_metadata_that_changed_meanwhile_are_left_alone() -> None:
    metadata = ledger("abc", "abd", last=7)
    first, second = repairs(metadata, [A], {})
    by_another = with_replaced(metadata, first, {0: E})
    assert by_another is not None
    assert with_replaced(by_another, first, {0: F}) is None
    assert with_replaced(by_another, second, {0: F}) is not None, "the other fragment is as it was"
    gone = replace(metadata, fragments=metadata.fragments[:1])
    assert with_replaced(gone, second, {0: F}) is None
    assert with_replaced(metadata, first, {0: B}) is None, "B is in the ensemble already"


def carry_out(
    metadata: LedgerMetadata, gone: set[BookieId], has: dict[BookieId, set[int]], spares: int
) -> LedgerMetadata:
    """Do what is planned; each copy is taken from a source that has it."""
    said: dict[BookieId, BookieReport] = {
        bookie: NoReport.UNREGISTERED
        if bookie in gone
        else [(part.start, part.stop - 1) for part in runs(has[bookie])]
        for bookie in metadata.bookies()
    }
    found = audit(metadata, said)
    for repair in repairs(metadata, found.gone, found.lacking):
        new = dict(zip(repair.lost, SPARES[:spares], strict=False))
        sent: set[tuple[int, BookieId]] = set()
        before = -1
        for entries, targets in transfers(repair, metadata.write_quorum, new):
            assert entries.start > before, "ascending"
            before = entries.stop - 1
            for entry in entries:
                givers = sources(repair, metadata.write_quorum, entry)
                assert set(givers) == copies_by_entry(metadata)[entry]
                assert any(entry in has[each] for each in givers if each not in targets)
                for target in targets:
                    assert (entry, target) not in sent
                    sent.add((entry, target))
                    has.setdefault(target, set()).add(entry)
        written = with_replaced(metadata, repair, new)
        assert written is not None
        metadata = written
    return metadata


@pytest.mark.parametrize("examples", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_afterwards_everybody_has_what_the_metadata_say(examples: int) -> None:
    @settings(max_examples=examples)
    @given(ledgers(), st.sets(st.sampled_from((A, B, C, D))), st.randoms(), st.integers(0, 4))
    def check(metadata: LedgerMetadata, gone: set[BookieId], rng: st.Random, spares: int) -> None:
        expected = copies_by_entry(metadata)
        has: dict[BookieId, set[int]] = {bookie: set() for bookie in metadata.bookies()}
        for entry, holders in expected.items():
            alive = sorted(holders - gone)
            assume(alive)
            for bookie in rng.sample(alive, rng.randint(1, len(alive))):
                has[bookie].add(entry)
        after = carry_out(metadata, gone, has, spares)
        members = after.bookies() & gone
        for entry, holders in copies_by_entry(after).items():
            for bookie in holders - members:
                assert entry in has[bookie], f"{bookie} is named for entry {entry} and lacks it"
        if spares == 4:
            open_end = set() if after.state is LedgerState.CLOSED else {after.last_fragment}
            for fragment in set(after.fragments) - open_end:
                assert gone.isdisjoint(fragment.ensemble)
        for before, now in zip(metadata.fragments, after.fragments, strict=True):
            assert now.first_entry == before.first_entry
            for old, new in zip(before.ensemble, now.ensemble, strict=True):
                assert new == old or (old in gone and new in SPARES)

    check()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_set_of_lost_bookies_of_a_striped_ledger(size: int) -> None:
    for wq in range(1, size + 1):
        metadata = ledger("abcd"[:size], wq=wq, last=8, size=100)
        for count in range(size):
            for lost in itertools.combinations(metadata.fragments[0].ensemble, count):
                has = {each: set[int]() for each in metadata.bookies()}
                for entry, holders in copies_by_entry(metadata).items():
                    for bookie in holders:
                        has[bookie].add(entry)
                if any(holders <= set(lost) for holders in copies_by_entry(metadata).values()):
                    continue
                after = carry_out(metadata, set(lost), has, 4)
                for entry, holders in copies_by_entry(after).items():
                    assert all(entry in has[each] for each in holders)
                assert after.fragments[0].first_entry == EntryId(0)
