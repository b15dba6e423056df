"""The kernel of the audit: what is wrong with one ledger."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bkbox.audit.kernel import (
    Copy,
    Disagreement,
    Fault,
    Judgement,
    Look,
    judge,
    merged_owners,
    merged_racks,
    ranges_of,
    runs_over,
)
from bkbox.ids import BookieId, EntryId, LedgerId
from bkbox.protocol.repair import expected_entries
from bkbox.wire.ledger import Fragment, LedgerMetadata, LedgerState

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


def judged(found: LedgerMetadata, looks: dict[BookieId, Look], *differ: Disagreement) -> Judgement:
    all_looks = {bookie: looks.get(bookie, Look()) for bookie in found.bookies()}
    return judge(found, all_looks, differ, RACKS)


def faults(*parts: range, kind: Fault = Fault.MISSING, why: str = "answered ENOENTRY") -> Look:
    return Look(faults={(kind, why): list(parts)})


def test_nothing_wrong() -> None:
    found = judged(metadata(A, B, C), {})
    assert found.is_clean
    assert [(row.rack, row.copies, row.lacking, row.only_here) for row in found.racks] == [
        ("/r1", 20, 0, 0),
        ("/r2", 10, 0, 0),
    ]
    assert found.owner == ("billing", 1, False, 10, 1000, 3000)


def test_missing_corrupt_and_unreadable_copies_are_lacking() -> None:
    looks = {
        A: faults(range(2, 5)),
        B: faults(range(5, 6), kind=Fault.CORRUPT, why="x"),
        C: faults(range(8, 10), kind=Fault.UNREADABLE, why="answered EIO"),
    }
    found = judged(metadata(A, B, C), looks)
    assert found.runs[Fault.MISSING] == [(7, A, 2, 4, 3, "answered ENOENTRY")]
    assert found.runs[Fault.CORRUPT] == [(7, B, 5, 5, 1, "x")]
    assert found.runs[Fault.UNREADABLE] == [(7, C, 8, 9, 2, "answered EIO")]
    (row,) = found.under_replicated
    assert (row.known_copies, row.possible_copies, row.entries) == (2, 2, 6)
    assert (row.gone, row.lacking) == ([], [A, B, C])


def test_who_says_nothing_lacks_nothing() -> None:
    found = judged(metadata(A, B, C), {C: Look(why_silent="no answer in time")})
    assert found.under_replicated == []
    assert not any(rows for fault, rows in found.runs.items() if fault is not Fault.UNKNOWN)
    assert found.runs[Fault.UNKNOWN] == [(7, C, 0, 9, 10, "no answer in time")]


def test_unknown_entries_count_as_possible_and_not_as_known() -> None:
    looks = {A: faults(range(3)), B: faults(range(2), kind=Fault.UNKNOWN, why="no answer")}
    (row,) = judged(metadata(A, B, C), looks).under_replicated
    assert (row.known_copies, row.possible_copies) == (1, 2)


def test_limbo_is_neither_missing_nor_there() -> None:
    found = judged(metadata(A, B, C), {A: Look(in_limbo=True)})
    assert found.limbo == [(A, 7, 10)]
    assert found.under_replicated == []
    assert not any(found.runs.values())


def test_a_bookie_that_is_gone() -> None:
    found = judged(metadata(A, B, D), {D: Look(is_gone=True)})
    (row,) = found.under_replicated
    assert (row.gone, row.lacking, row.possible_copies) == ([D], [], 2)
    assert not any(found.runs.values())
    assert sum(row.lacking for row in found.racks) == 10


def test_what_an_ack_quorum_has_is_right_and_the_other_is_lacking() -> None:
    x, y = Copy("aa", 100), Copy("bb", 100)
    found = judged(metadata(A, B, C), {}, Disagreement(4, {A: x, B: y, C: x}))
    assert [(row.bookie, row.verdict, row.copies) for row in found.divergent] == [
        (A, "right", 2),
        (B, "wrong", 1),
        (C, "right", 2),
    ]
    assert found.under_replicated[0].lacking == [B]


def test_where_nothing_says_which_is_right_nothing_is_decided() -> None:
    x, y = Copy("aa", 100), Copy("bb", 100)
    two = judged(metadata(A, B, ack_quorum=1), {}, Disagreement(4, {A: x, B: y}))
    assert {row.verdict for row in two.divergent} == {"undecided"}
    assert two.under_replicated == []
    by_metadata = judged(metadata(A, B, ack_quorum=1), {}, Disagreement(9, {A: x, B: y}, y))
    assert [(row.bookie, row.verdict, row.proof) for row in by_metadata.divergent] == [
        (A, "wrong", "metadata"),
        (B, "right", "metadata"),
    ]


def test_all_that_a_bookie_lacks_of_a_striped_ledger_is_one_row() -> None:
    striped = metadata(A, B, C, write_quorum=2, entries=30)
    expected = list(expected_entries(striped, A))
    found = judged(striped, {A: faults(*expected)})
    assert found.runs[Fault.MISSING] == [(7, A, 0, 29, 20, "answered ENOENTRY")]
    assert found.under_replicated[0].known_copies == 1


def test_an_open_ledger_owes_nothing_yet_in_its_last_fragment() -> None:
    closed = metadata(A, B, C)
    opened = replace(closed, state=LedgerState.OPEN, last_entry=EntryId(-1), length=0)
    found = judged(opened, {A: Look()})
    assert found.is_clean
    assert (found.ledger.entries, found.ledger.bytes, found.owner.open_ledgers) == (
        None,
        None,
        True,
    )


def test_entries_in_one_rack_alone_are_counted() -> None:
    found = judged(metadata(A, B, C, write_quorum=2, entries=9), {})
    assert [(row.rack, row.only_here) for row in found.racks] == [("/r1", 3), ("/r2", 0)]


def test_sums() -> None:
    one = judged(metadata(A, B, C), {})
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
