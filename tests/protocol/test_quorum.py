"""Quorum arithmetic: the tables, and brute force over every subset."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from bkbox.errors import QuorumSizeError
from bkbox.protocol.quorum import QuorumSizes, ReadOutcome, read_outcome
from bkbox.wire.codes import Code, Evidence

P, N, U = Evidence.POSITIVE, Evidence.NEGATIVE, Evidence.UNKNOWN
SIZES = [(e, w, a) for e in range(1, 7) for w in range(1, e + 1) for a in range(1, w + 1)]


def subsets(size: int) -> list[frozenset[int]]:
    return [
        frozenset(chosen)
        for chosen in chain.from_iterable(combinations(range(size), n) for n in range(size + 1))
    ]


@pytest.mark.parametrize(
    ("write_quorum", "ack_quorum", "threshold"),
    [(2, 1, 2), (2, 2, 1), (3, 1, 3), (3, 2, 2), (3, 3, 1), (4, 2, 3), (4, 3, 2), (4, 4, 1)],
)
def test_negative_threshold(write_quorum: int, ack_quorum: int, threshold: int) -> None:
    assert QuorumSizes(write_quorum, write_quorum, ack_quorum).negative_threshold == threshold


@pytest.mark.parametrize("sizes", [(2, 3, 2), (3, 2, 3), (3, 3, 0), (0, 0, 0), (2, 3, 4)])
def test_sizes_that_do_not_fit_are_named(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(QuorumSizeError) as raised:
        QuorumSizes(*sizes)
    assert "ensemble size {}, write quorum {} and ack quorum {}".format(*sizes) in str(raised.value)


def test_an_ack_quorum_of_one_is_warned_about() -> None:
    assert "ack quorum 1 of write quorum 2" in QuorumSizes(3, 2, 1).warnings()[0]
    assert QuorumSizes(3, 2, 2).warnings() == []
    assert QuorumSizes(3, 1, 1).warnings() == []


@pytest.mark.parametrize("sizes", SIZES)
def test_coverage_means_that_the_rest_can_acknowledge_nothing(sizes: tuple[int, int, int]) -> None:
    """By definition: no entry can collect AQ acknowledgements from bookies not heard."""
    ensemble_size, write_quorum, ack_quorum = sizes
    quorums = QuorumSizes(*sizes)
    for heard in subsets(ensemble_size):
        rest = set(range(ensemble_size)) - heard
        can_acknowledge = any(
            len([k for k in range(write_quorum) if (entry + k) % ensemble_size in rest])
            >= ack_quorum
            for entry in range(ensemble_size * 2)
        )
        assert quorums.covered(heard) is not can_acknowledge
        enough = len(heard) > ensemble_size - ack_quorum
        if enough or write_quorum == ensemble_size:
            assert quorums.covered(heard) is enough


@pytest.mark.parametrize("sizes", [s for s in SIZES if s[0] == s[1]])
def test_negatives_at_the_threshold_meet_every_ack_quorum(sizes: tuple[int, int, int]) -> None:
    """QC negatives share a bookie with each set of AQ that may have acknowledged; QC - 1 may not."""
    _, write_quorum, ack_quorum = sizes
    threshold = QuorumSizes(*sizes).negative_threshold
    acknowledging = [set(s) for s in combinations(range(write_quorum), ack_quorum)]
    for said_no in subsets(write_quorum):
        meets_all = all(said_no & quorum for quorum in acknowledging)
        assert meets_all is (len(said_no) >= threshold)


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([U, P], ReadOutcome.POSITIVE),  # second response positive
        ([N, N], ReadOutcome.NEGATIVE),  # two negatives first
        ([U, U, U], ReadOutcome.UNKNOWN),  # all unknown
        ([N, U], ReadOutcome.PENDING),  # neither threshold yet
        ([N, U, P], ReadOutcome.POSITIVE),  # last positive
        ([N, U, N], ReadOutcome.NEGATIVE),  # last negative
        ([U, N, U], ReadOutcome.UNKNOWN),  # last reaches neither
    ],
)
def test_outcomes_of_a_recovery_read(answers: list[Evidence], outcome: ReadOutcome) -> None:
    needed = QuorumSizes(3, 3, 2).negative_threshold
    assert read_outcome(answers, replicas=3, negatives_needed=needed) is outcome


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([N, N], ReadOutcome.PENDING),
        ([N, N, N], ReadOutcome.NEGATIVE),
        ([N, U, N], ReadOutcome.UNKNOWN),
        ([U, U, P], ReadOutcome.POSITIVE),
    ],
)
def test_outcomes_of_an_ordinary_read(answers: list[Evidence], outcome: ReadOutcome) -> None:
    assert read_outcome(answers, replicas=3, negatives_needed=3) is outcome


def test_only_two_codes_say_no() -> None:
    negative = {code for code in Code if code.evidence is N}
    assert negative == {Code.ENOENTRY, Code.ENOLEDGER}
    assert {code for code in Code if code.evidence is P} == {Code.EOK}
