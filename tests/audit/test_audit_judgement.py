"""The kernel of the audit: what is wrong with one ledger."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bkbox.audit.compare import CopyComparer, copy_of
from bkbox.audit.judgement import (
    Copy,
    CopyEvidence,
    Disagreement,
    Fault,
    Judgement,
    classify_ledger,
    merged_owners,
    merged_racks,
    ranges_of,
    runs_over,
    without_copy,
)
from bkbox.audit.plan import Action, Step
from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.protocol.repair import expected_entries
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from bkbox.wire.metadata.loss import LossRecord, with_loss
from bkbox.wire.write_set import write_set

A, B, C, D = (BookieId(f"{name}:3181") for name in "abcd")
RACKS = {A: "/r1", B: "/r1", C: "/r2"}


def metadata(
    *ensemble: BookieId, write_quorum: int = 0, entries: int = 10, ack_quorum: int = 2
) -> LedgerMetadata:
    return LedgerMetadata(
        LedgerId(7),
        len(ensemble),
        write_quorum or len(ensemble),
        ack_quorum,
        LedgerState.CLOSED,
        (Fragment(EntryId(0), ensemble),),
        last_entry=EntryId(entries - 1),
        length=100 * entries,
        custom=(("owner", b"billing"),),
    )


def judgement(
    found: LedgerMetadata, by_bookie: dict[BookieId, CopyEvidence], *differ: Disagreement
) -> Judgement:
    of_all = {bookie: by_bookie.get(bookie, CopyEvidence()) for bookie in found.bookies()}
    return classify_ledger(found, of_all, differ, RACKS)


def faults(
    *parts: range, kind: Fault = Fault.MISSING, why: str = "answered ENOENTRY"
) -> CopyEvidence:
    return CopyEvidence(faults={(kind, why): list(parts)})


def test_nothing_wrong() -> None:
    found = judgement(metadata(A, B, C), {})
    assert found.is_clean
    assert [(row.rack, row.copies, row.lacking, row.only_here) for row in found.racks] == [
        ("/r1", 20, 0, 0),
        ("/r2", 10, 0, 0),
    ]
    assert found.owner == ("billing", 1, False, 10, 1000, 3000)


def test_missing_corrupt_and_unreadable_copies_are_lacking() -> None:
    by_bookie = {
        A: faults(range(2, 5)),
        B: faults(range(5, 6), kind=Fault.CORRUPT, why="x"),
        C: faults(range(8, 10), kind=Fault.UNREADABLE, why="answered EIO"),
    }
    found = judgement(metadata(A, B, C), by_bookie)
    assert found.runs[Fault.MISSING] == [(7, A, 2, 4, 3, "answered ENOENTRY")]
    assert found.runs[Fault.CORRUPT] == [(7, B, 5, 5, 1, "x")]
    assert found.runs[Fault.UNREADABLE] == [(7, C, 8, 9, 2, "answered EIO")]
    (row,) = found.under_replicated
    assert (row.known_copies, row.possible_copies, row.entries) == (2, 2, 6)
    assert (row.gone, row.lacking) == ([], [A, B, C])


def test_who_says_nothing_lacks_nothing() -> None:
    found = judgement(metadata(A, B, C), {C: CopyEvidence(why_unresponsive="no answer in time")})
    assert found.under_replicated == []
    assert not any(rows for fault, rows in found.runs.items() if fault is not Fault.UNKNOWN)
    assert found.runs[Fault.UNKNOWN] == [(7, C, 0, 9, 10, "no answer in time")]


def test_unknown_entries_count_as_possible_and_not_as_known() -> None:
    by_bookie = {A: faults(range(3)), B: faults(range(2), kind=Fault.UNKNOWN, why="no answer")}
    (row,) = judgement(metadata(A, B, C), by_bookie).under_replicated
    assert (row.known_copies, row.possible_copies) == (1, 2)


def test_limbo_is_neither_missing_nor_there() -> None:
    found = judgement(metadata(A, B, C), {A: CopyEvidence(in_limbo=True)})
    assert found.limbo == [(A, 7, 10)]
    assert found.under_replicated == []
    assert not any(found.runs.values())


def test_a_bookie_that_is_gone() -> None:
    found = judgement(metadata(A, B, D), {D: CopyEvidence(is_unregistered=True)})
    (row,) = found.under_replicated
    assert (row.gone, row.lacking, row.possible_copies) == ([D], [], 2)
    assert not any(found.runs.values())
    assert sum(row.lacking for row in found.racks) == 10


def test_what_an_ack_quorum_has_is_right_and_the_other_is_lacking() -> None:
    x, y = Copy("aa", 100), Copy("bb", 100)
    found = judgement(metadata(A, B, C), {}, Disagreement(4, {A: x, B: y, C: x}))
    assert [(row.bookie, row.verdict, row.copies) for row in found.divergent] == [
        (A, "right", 2),
        (B, "wrong", 1),
        (C, "right", 2),
    ]
    assert found.under_replicated[0].lacking == [B]


def test_where_nothing_says_which_is_right_nothing_is_decided() -> None:
    x, y = Copy("aa", 100), Copy("bb", 100)
    two = judgement(metadata(A, B, ack_quorum=1), {}, Disagreement(4, {A: x, B: y}))
    assert {row.verdict for row in two.divergent} == {"undecided"}
    assert two.under_replicated == []
    by_metadata = judgement(metadata(A, B, ack_quorum=1), {}, Disagreement(9, {A: x, B: y}, y))
    assert [(row.bookie, row.verdict, row.proof) for row in by_metadata.divergent] == [
        (A, "wrong", "metadata"),
        (B, "right", "metadata"),
    ]


def test_all_that_a_bookie_lacks_of_a_striped_ledger_is_one_row() -> None:
    striped = metadata(A, B, C, write_quorum=2, entries=30)
    expected = list(expected_entries(striped, A))
    found = judgement(striped, {A: faults(*expected)})
    assert found.runs[Fault.MISSING] == [(7, A, 0, 29, 20, "answered ENOENTRY")]
    assert found.under_replicated[0].known_copies == 1


def test_an_open_ledger_owes_nothing_yet_in_its_last_fragment() -> None:
    closed = metadata(A, B, C)
    opened = replace(closed, state=LedgerState.OPEN, last_entry=EntryId(-1), length=0)
    found = judgement(opened, {A: CopyEvidence()})
    assert found.is_clean
    assert (found.ledger.entries, found.ledger.bytes, found.owner.open_ledgers) == (
        None,
        None,
        True,
    )


def test_entries_in_one_rack_alone_are_counted() -> None:
    found = judgement(metadata(A, B, C, write_quorum=2, entries=9), {})
    assert [(row.rack, row.only_here) for row in found.racks] == [("/r1", 3), ("/r2", 0)]


def test_sums() -> None:
    one = judgement(metadata(A, B, C), {})
    racks = merged_racks([*one.racks, *one.racks])
    assert [(row.rack, row.ledgers, row.copies) for row in racks] == [
        ("/r1", 2, 40),
        ("/r2", 2, 20),
    ]
    assert merged_owners([one.owner, one.owner]) == [("billing", 2, 0, 20, 2000, 6000)]


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_runs_join_what_lies_together_among_the_expected(
    expected: set[int], faulty: set[int]
) -> None:
    found = list(runs_over(ranges_of(sorted(expected)), ranges_of(sorted(faulty))))
    wanted: list[list[int]] = []
    joins = False
    for entry in sorted(expected):
        if entry in faulty:
            if joins:
                wanted[-1].append(entry)
            else:
                wanted.append([entry])
        joins = entry in faulty
    assert found == [(run[0], run[-1], len(run)) for run in wanted]


# ---- entries without a copy, ledgers without an end --------------------------------------------------


def test_entries_without_any_copy_are_one_row_of_their_ledger_and_nothing_to_copy() -> None:
    by_bookie = {
        A: faults(range(1, 8), kind=Fault.UNREADABLE, why="answered EIO"),
        B: CopyEvidence(in_limbo=True, withheld=[range(3), range(5, 6)]),
        D: CopyEvidence(is_unregistered=True),
    }
    found = judgement(metadata(A, B, D), by_bookie)
    (row,) = found.no_copy
    assert (row.entries, row.ranges) == (3, "1-2, 5")
    assert row.why == f"{A}: answered EIO; {B} is in limbo; {D} is gone"
    assert [run[2:5] for run in found.runs[Fault.UNREADABLE]] == [(3, 4, 2), (6, 7, 2)]


def test_an_entry_that_a_silent_bookie_may_have_is_not_without_a_copy() -> None:
    by_bookie = {
        A: faults(range(10)),
        B: CopyEvidence(why_unresponsive="no answer"),
        C: faults(range(10)),
    }
    found = judgement(metadata(A, B, C), by_bookie)
    assert found.no_copy == []
    assert len(found.runs[Fault.MISSING]) == 2


def test_a_striped_ledger_lacks_what_two_neighbours_have_lost() -> None:
    by_bookie = {A: faults(*(range(n, n + 1) for n in range(9))), B: faults(range(9))}
    (row,) = judgement(metadata(A, B, C, write_quorum=2, entries=9), by_bookie).no_copy
    assert (row.entries, row.ranges) == (3, "0, 3, 6")


@given(st.data())
def test_what_has_no_copy_is_what_brute_force_finds(data: st.DataObject) -> None:
    names = (A, B, C, D)
    size = data.draw(st.integers(1, 4))
    quorum = data.draw(st.integers(1, size))
    striped = metadata(*names[:size], write_quorum=quorum, entries=14, ack_quorum=1)
    by_bookie, gives = {}, {}
    for bookie in names[:size]:
        kind = data.draw(st.sampled_from(["lists", "limbo", "gone", "silent"]))
        lacks = data.draw(st.sets(st.integers(0, 13)))
        parts = ranges_of(sorted(lacks))
        by_bookie[bookie] = {
            "lists": faults(*parts) if parts else CopyEvidence(),
            "limbo": CopyEvidence(in_limbo=True, withheld=parts),
            "gone": CopyEvidence(is_unregistered=True),
            "silent": CopyEvidence(why_unresponsive="no answer"),
        }[kind]
        every = set(range(14))
        gives[bookie] = set() if kind == "gone" else every if kind == "silent" else every - lacks
    expected = [
        entry
        for entry in range(14)
        if not any(entry in gives[names[at]] for at in write_set(entry, size, quorum))
    ]
    assert without_copy(striped, by_bookie) == ranges_of(expected)


def opened(*ensemble: BookieId) -> LedgerMetadata:
    return replace(metadata(*ensemble), state=LedgerState.OPEN, last_entry=EntryId(-1), length=0)


def test_an_open_ledger_with_an_ack_quorum_in_limbo_is_blocked() -> None:
    limbo = CopyEvidence(in_limbo=True)
    assert judgement(opened(A, B, C), {A: limbo}).blocked == []
    (row,) = judgement(opened(A, B, C), {A: limbo, B: limbo}).blocked
    assert (row.limbo, row.gone, row.state) == ([A, B], [], "OPEN")
    (row,) = judgement(opened(A, B, C), {A: limbo, B: CopyEvidence(is_unregistered=True)}).blocked
    assert (row.limbo, row.gone) == ([A], [B])
    assert judgement(metadata(A, B, C), {A: limbo, B: limbo}).blocked == []


def test_a_silent_bookie_of_an_open_ledger_is_unknown() -> None:
    found = judgement(opened(A, B, C), {A: CopyEvidence(why_unresponsive="no answer")})
    assert found.runs[Fault.UNKNOWN] == [(7, A, 0, -1, 0, "no answer")]


def test_a_ledger_that_was_ended_with_loss_is_listed() -> None:
    ended = with_loss(metadata(A, B, C), LossRecord(5, 9, lost="3", lost_entries=1, by="me"))
    (row,) = judgement(ended, {}).ended
    assert (row.at_ms, row.by, row.end, row.lost, row.lost_entries) == (5, "me", 9, "3", 1)
    assert judgement(ended, {}).is_clean


# ---- which of two copies has the wrong size -----------------------------------------------------------


def entry(number: int, payload: bytes, length: int) -> VerifiedEntry:
    return VerifiedEntry(LedgerId(7), EntryId(number), EntryId(number - 1), length, payload)


def compared(
    *windows: tuple[dict[int, VerifiedEntry], dict[int, VerifiedEntry]],
) -> list[Disagreement]:
    """Of A and B; each entry is 10 bytes where they do not say otherwise."""
    comparer = CopyComparer(metadata(A, B, ack_quorum=1, entries=40))
    for at, (of_a, of_b) in enumerate(windows):
        numbers = range(10 * at, 10 * at + 10)
        right = {n: entry(n, b"%010d" % n, 10 * n + 10) for n in numbers}
        comparer.add({A: [*(right | of_a).values()], B: [*(right | of_b).values()]})
    return comparer.finish()


def test_the_lengths_around_prove_which_copy_has_the_wrong_size() -> None:
    short = {4: entry(4, b"short", 45)}
    no_length = {4: entry(4, b"short", 50)}
    swollen = {4: entry(4, b"%010d" % 4, 90)}
    for wrong in (short, no_length, swollen):
        (found,) = compared((wrong, {}))
        assert (found.proved, found.proof) == (found.copies[B], "length")
        assert found.right(2) == (found.copies[B], "length")


def test_a_window_begins_and_ends_anywhere() -> None:
    first, last = {0: entry(0, b"short", 5)}, {9: entry(9, b"short", 95)}
    assert compared((first, {}))[0].proof == "length", "nothing is before it"
    # By what is before both fit: the next window decides.
    (found,) = compared((last, {}), ({}, {}))
    assert (found.entry, found.proved, found.proof) == (9, found.copies[B], "length")
    (found,) = compared(({}, {}), ({10: entry(10, b"short", 105)}, {}))
    assert (found.entry, found.proof) == (10, "length")
    (found,) = compared((last, {}))
    assert found.proved is None, "nothing is behind it"


def test_where_both_fit_nothing_is_proved() -> None:
    same_size = {4: entry(4, b"x" * 10, 50)}
    (found,) = compared((same_size, {}))
    assert found.proved is None
    two = compared(({4: entry(4, b"short", 45)}, {5: entry(5, b"short", 55)}))
    assert [each.proved is None for each in two] == [True, False]


def test_a_plan_tells_copies_apart_that_differ_in_the_length_alone() -> None:
    good, bad = copy_of(entry(4, b"x", 50)), copy_of(entry(4, b"x", 90))
    step = Step(Action.OVERWRITE, 7, A, 4, 4, 1, f"{good.sha256}/50", "")
    assert (step.means(good), step.means(bad)) == (True, False)
