"""What a bookie has to hold, what of it is missing, whom to ask, and when limbo ends."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.protocol.repair import (
    acknowledged_entries,
    expected_entries,
    may_leave_limbo,
    missing,
    needs_recovery,
    peers,
)
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from tests.protocol.notation import ledger

VECTORS = Path(__file__).parent.parent / "wire" / "vectors" / "metadata.json"
CASES = json.loads(VECTORS.read_text())["expected_entries"]
B1 = BookieId("b1")
OPEN, IN_RECOVERY, CLOSED = LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED


def from_vector(fields: dict[str, Any]) -> LedgerMetadata:
    last = fields["last_entry_id"]
    return LedgerMetadata(
        LedgerId(fields["ledger_id"]),
        fields["ensemble_size"],
        fields["write_quorum"],
        fields["ack_quorum"],
        LedgerState[fields["state"]],
        tuple(
            Fragment(EntryId(first), tuple(map(BookieId, names)))
            for first, names in fields["ensembles"]
        ),
        EntryId(-1 if last is None else last),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["description"])
def test_expected_entries_as_java_has_them(case: dict[str, Any]) -> None:
    ranges = list(expected_entries(from_vector(case["metadata"]), BookieId(case["bookie"])))
    assert [e for r in ranges for e in r] == case["entries_this_bookie_must_hold"]
    assert all(a.stop < b.start for a, b in pairwise(ranges))


def closed(sizes: tuple[int, int], fragments: str, last: int) -> LedgerMetadata:
    return ledger(*sizes, 1, fragments, CLOSED, last)


def test_fragments_that_touch_become_one_range() -> None:
    metadata = closed((2, 2), "0:b1,b2 5:b1,b3 9:b4,b3 12:b3,b1", 19)
    assert list(expected_entries(metadata, B1)) == [range(9), range(12, 20)]
    assert list(expected_entries(metadata, B1, upto=13)) == [range(9), range(12, 14)]
    for end in range(12):
        assert list(expected_entries(metadata, B1, upto=end)) == [range(min(end + 1, 9))]


@pytest.mark.parametrize(
    ("state", "fragments", "lac", "held"),
    [
        (OPEN, "0:b1,b2", -1, []),
        (OPEN, "0:b1,b2", 7, [range(8)]),
        (OPEN, "0:b1,b2 5:b3,b2", 7, [range(5)]),
        (OPEN, "0:b3,b2 5:b1,b2", 7, [range(5, 8)]),
        (OPEN, "0:b1,b2 5:b3,b2 9:b1,b2", 3, [range(5)]),
        (IN_RECOVERY, "0:b1,b2", 7, []),
        (CLOSED, "0:b1,b2", 3, [range(9)]),
        (CLOSED, "0:b1,b2", 20, [range(9)]),
    ],
)
def test_what_is_known_of_a_ledger_that_is_written_to(
    state: LedgerState, fragments: str, lac: int, held: list[range]
) -> None:
    """Of an open last fragment what is acknowledged, and of any other what its state says: a LAC adds nothing there."""
    metadata = ledger(2, 2, 2, fragments, state, 8)
    assert list(acknowledged_entries(metadata, B1, lac)) == held


def test_a_bookie_named_twice_holds_both_positions() -> None:
    metadata = closed((3, 1), "0:b1,b2,b1", 5)
    assert list(expected_entries(metadata, B1)) == [range(1), range(2, 4), range(5, 6)]


def test_an_empty_last_fragment() -> None:
    assert list(expected_entries(closed((1, 1), "0:b2 5:b1", 4), B1)) == []


def test_missing_against_sets() -> None:
    rng = random.Random(3)
    for _ in range(500):
        wanted, present = (sorted(rng.sample(range(40), rng.randrange(40))) for _ in range(2))
        expected = [range(first, last + 1) for first, last in runs_of(wanted)]
        found = list(missing(expected, runs_of(present)))
        assert [e for r in found for e in r] == sorted(set(wanted) - set(present))
        assert all(found)


def runs_of(entries: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for entry in entries:
        if runs and runs[-1][1] == entry - 1:
            runs[-1] = (runs[-1][0], entry)
        else:
            runs.append((entry, entry))
    return runs


def test_peers_are_the_rest_of_the_write_set_from_this_bookie_on() -> None:
    metadata = closed((4, 3), "0:b1,b2,b3,b4 4:b9,b2,b3,b4", 9)
    assert peers(metadata, 0, B1) == ("b2", "b3")
    assert peers(metadata, 2, B1) == ("b3", "b4")
    assert peers(metadata, 3, B1) == ("b2", "b4")
    assert peers(metadata, 4, B1) == ("b9", "b2", "b3")


@pytest.mark.parametrize(
    ("state", "fragments", "needed"),
    [
        (OPEN, "0:b1,b2", True),
        (IN_RECOVERY, "0:b1,b2", True),
        (CLOSED, "0:b1,b2", False),
        (OPEN, "0:b1,b2 5:b3,b2", False),
        (IN_RECOVERY, "0:b1,b2 5:b3,b2", True),
        (OPEN, "0:b3,b2 5:b1,b2", True),
    ],
)
def test_needs_recovery(state: LedgerState, fragments: str, needed: bool) -> None:
    metadata = ledger(2, 2, 2, fragments, state, 8)
    assert needs_recovery(metadata, B1) is needed
    assert may_leave_limbo(metadata, B1, missing=0, unverified=0) is not needed


def test_limbo_ends_only_when_all_is_there_and_checked() -> None:
    metadata = closed((2, 2), "0:b1,b2", 8)
    assert may_leave_limbo(metadata, B1, missing=0, unverified=0)
    assert not may_leave_limbo(metadata, B1, missing=1, unverified=0)
    assert not may_leave_limbo(metadata, B1, missing=0, unverified=1)
    assert may_leave_limbo(None, B1, missing=5, unverified=5)
