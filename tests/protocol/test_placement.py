"""Placement by its rules: who is dropped, who is passed over and why, racks, hosts, weights, chance."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from bkbox.base.ids import BookieId
from bkbox.protocol.placement import Candidate, Mode, Placement, Verdict, place
from bkbox.wire.write_set import write_set

GIB = 1 << 30


def bookie(
    name: str,
    rack: str = "/r",
    *,
    host: str = "",
    mode: Mode = Mode.WRITABLE,
    suspect: bool = False,
    free: int | None = None,
) -> Candidate:
    return Candidate(BookieId(name), host or f"host-{name}", rack, mode, suspect, free)


def racks(text: str) -> list[Candidate]:
    """A letter for each bookie, its rack: bookies a0, a1, b2 … on hosts of their own."""
    return [bookie(f"{letter}{n}", f"/{letter}") for n, letter in enumerate(text)]


def new(
    candidates: Iterable[Candidate],
    size: int,
    write_quorum: int | None = None,
    *,
    seed: int = 1,
    min_racks: int = 2,
    exclude: Iterable[str] = (),
) -> Placement:
    return place(
        [None] * size,
        candidates,
        write_quorum or size,
        random.Random(seed),
        min_racks=min_racks,
        exclude=[BookieId(each) for each in exclude],
    )


def letters(placement: Placement) -> str:
    return "".join(each[0] if each else "-" for each in placement.ensemble)


def verdicts(placement: Placement) -> dict[str, tuple[Verdict, str]]:
    return {each.candidate.bookie: (each.verdict, each.reason) for each in placement.decisions}


# ---- who takes part -----------------------------------------------------------------------------


def test_the_dropped_and_why() -> None:
    placement = new(
        [
            bookie("a"),
            bookie("b", mode=Mode.READ_ONLY),
            bookie("c", mode=Mode.DOWN),
            bookie("d"),
            bookie("e", mode=Mode.READ_ONLY),
        ],
        1,
        exclude=["d", "e"],
    )
    assert placement.ensemble == ("a",)
    assert verdicts(placement) == {
        "a": (Verdict.CHOSEN, ""),
        "b": (Verdict.DROPPED, "read-only"),
        "c": (Verdict.DROPPED, "down"),
        "d": (Verdict.DROPPED, "excluded"),
        "e": (Verdict.DROPPED, "excluded"),
    }
    assert [each.weight for each in placement.decisions] == [1.0, None, None, None, None]


def test_too_few_bookies_are_counted_and_named() -> None:
    placement = new([bookie("a"), bookie("b", mode=Mode.READ_ONLY), bookie("c")], 3)
    assert not placement.is_complete
    assert placement.shortage(3) == (
        "3 bookies are needed, 2 are available: a, c; dropped: b (read-only)"
    )
    assert new([], 1).shortage(4) == "4 bookies are needed, 0 are available: none"
    assert new([bookie("a")], 1).shortage(1) == "1 bookie is needed, 1 is available: a"


def test_a_write_quorum_larger_than_the_seats_is_just_too_few_bookies() -> None:
    assert not place([None, None], [bookie("a")], 10**9, random.Random(1)).is_complete


def test_suspects_are_used_only_for_want_of_others() -> None:
    four = [
        bookie("a"),
        bookie("b"),
        bookie("c", "/elsewhere", suspect=True),
        bookie("d", suspect=True),
    ]
    for seed in range(30):
        two = new(four, 2, seed=seed)
        assert set(two.ensemble) == {"a", "b"}, "not even for a second rack"
        assert verdicts(two)["c"] == (Verdict.PASSED_OVER, "not reached a moment ago")
        three = new(four, 3, seed=seed)
        assert set(three.ensemble) == {"a", "b", "c"}, "the one that adds a rack"
        assert three.relaxed == (
            "c could not be reached a moment ago and is used for want of others",
        )


# ---- racks and hosts ----------------------------------------------------------------------------


def shortfall(labels: Sequence[str], write_quorum: int, wanted: int) -> int:
    size = len(labels)
    starts = range(size if write_quorum < size else 1)
    windows = [write_set(start, size, write_quorum) for start in starts]
    return sum(max(0, wanted - len({labels[p] for p in window})) for window in windows)


CLUSTERS = ["a", "aa", "ab", "aab", "aabb", "abc", "aaab", "aabc", "aaabb", "aabbc", "aaaabc"]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_write_quorums_span_racks_wherever_any_ensemble_could(cluster: str) -> None:
    for size in range(1, min(5, len(cluster)) + 1):
        every = set(itertools.permutations(cluster, size))
        for write_quorum, min_racks in itertools.product(range(1, size + 1), (1, 2, 3)):
            wanted = min(min_racks, write_quorum, len(set(cluster)))
            best = min(shortfall(each, write_quorum, wanted) for each in every)
            for seed in range(3):
                found = new(racks(cluster), size, write_quorum, seed=seed, min_racks=min_racks)
                assert len(set(found.ensemble)) == size
                assert shortfall(letters(found), write_quorum, wanted) == best, (found, min_racks)
                kept = shortfall(letters(found), write_quorum, min(min_racks, write_quorum)) == 0
                assert bool(found.relaxed) != kept


def test_racks_are_used_evenly() -> None:
    for seed in range(30):
        assert sorted(letters(new(racks("aaaabbbbc"), 3, seed=seed))) == ["a", "b", "c"]
        counts = Counter(letters(new(racks("aaaabbbbc"), 5, seed=seed)))
        assert counts == {"a": 2, "b": 2, "c": 1}


def test_racks_are_even_within_each_write_quorum_too() -> None:
    for seed in range(30):
        assert shortfall(letters(new(racks("aabbcc"), 6, 3, seed=seed)), 3, 3) == 0
        assert len(set(letters(new(racks("aabbccdd"), 4, 2, seed=seed)))) == 4


def test_within_a_rack_hosts_are_used_evenly() -> None:
    crowded = [bookie(f"x{n}", host="x") for n in range(5)]
    cluster = [*crowded, bookie("y", host="y"), bookie("z", host="z")]
    for seed in range(30):
        assert sorted(letters(new(cluster, 3, seed=seed))) == ["x", "y", "z"]
        assert letters(new(cluster, 4, seed=seed)).count("x") == 2


def test_without_racks_no_entry_lies_on_one_host_alone() -> None:
    cluster = [bookie(f"{host}{n}", host=host) for host in "wxyz" for n in range(2)]
    for seed in range(50):
        hosts = letters(new(cluster, 6, 2, seed=seed))
        assert shortfall(hosts, 2, 2) == 0


def test_relaxed_racks_and_hosts_are_told() -> None:
    one_rack = new(racks("aaaa"), 3)
    assert one_rack.relaxed == (
        "not every write quorum spans 2 racks, because of where the bookies are: /a (4)",
    )
    one_host = new([bookie(n, f"/{n}", host="h") for n in "abc"], 3)
    assert one_host.relaxed == ("not every write quorum spans 2 hosts",)
    one_of_both = new([bookie(n, host="h") for n in "abc"], 3)
    assert one_of_both.relaxed == (
        "not every write quorum spans 2 racks, because of where the bookies are: /r (3)",
        "not every write quorum spans 2 hosts",
    )
    assert new(racks("aaaa"), 3, 1).relaxed == (), "one copy needs one rack"
    assert new(racks("aab"), 3, 2).relaxed == (
        "not every write quorum spans 2 racks, because of where the bookies are: /a (2), /b (1)",
    )


# ---- passed over --------------------------------------------------------------------------------


def test_passed_over_for_the_rack_the_host_or_by_chance() -> None:
    for seed in range(20):
        found = new(racks("aaab"), 2, seed=seed)
        reasons = [reason for verdict, reason in verdicts(found).values() if reason]
        assert reasons == ["rack /a has 1 of 2 already"] * 2
        cluster = [bookie("x0", host="x"), bookie("x1", host="x"), bookie("y", host="y")]
        found = new(cluster, 2, seed=seed)
        reasons = [reason for verdict, reason in verdicts(found).values() if reason]
        assert reasons == ["host x has 1 of 2 already"]
        found = new(racks("abc"), 2, seed=seed)
        reasons = [reason for verdict, reason in verdicts(found).values() if reason]
        assert reasons == ["others were drawn"]


# ---- replacements -------------------------------------------------------------------------------


def replace(
    ensemble: str, spare: str, write_quorum: int, *, seed: int = 1, exclude: Sequence[str] = ()
) -> Placement:
    """``ensemble``: a letter for the rack of each member that stays, a dash for each that goes."""
    members = [
        None if c == "-" else bookie(f"{c}-member{n}", f"/{c}") for n, c in enumerate(ensemble)
    ]
    spares = [bookie(f"{c}{n}", f"/{c}") for n, c in enumerate(spare)]
    candidates = [*spares, *(each for each in members if each is not None)]
    return place(
        members,
        candidates,
        write_quorum,
        random.Random(seed),
        exclude=[BookieId(each) for each in exclude],
    )


def test_a_replacement_restores_the_racks_of_its_write_quorums() -> None:
    for seed in range(20):
        assert letters(replace("a-a", "aab", 3, seed=seed)) == "aba"
        assert letters(replace("ab-cdc", "bac", 2, seed=seed)) == "abacdc", "not beside its own"
        both = replace("a--b", "abc", 3, seed=seed)
        assert shortfall(letters(both), 3, 2) == 0
        assert both.ensemble[0] == "a-member0"
        assert both.ensemble[3] == "b-member3"


def test_members_and_the_failed_are_no_replacements() -> None:
    found = replace("ab-", "c", 3, exclude=["c0"])
    assert found.ensemble == ("a-member0", "b-member1", None)
    assert verdicts(found) == {
        "a-member0": (Verdict.DROPPED, "in the ensemble already"),
        "b-member1": (Verdict.DROPPED, "in the ensemble already"),
        "c0": (Verdict.DROPPED, "excluded"),
    }


def test_with_fewer_spares_than_failed_the_first_positions_are_filled() -> None:
    assert letters(replace("-b-d", "c", 4)) == "cb-d"
    assert letters(replace("-b-d", "", 4)) == "-b-d"


# ---- chance -------------------------------------------------------------------------------------


def shares(candidates: Sequence[Candidate], size: int, draws: int = 4_000) -> dict[str, float]:
    rng = random.Random(7)
    counts: Counter[str] = Counter()
    for _ in range(draws):
        counts.update(map(str, place([None] * size, candidates, size, rng).ensemble))
    return {name: count / draws for name, count in counts.items()}


def test_free_space_weighs_up_to_three_times_the_median() -> None:
    cluster = [
        bookie("a", free=GIB),
        bookie("b", free=GIB),
        bookie("c", free=2 * GIB),
        bookie("d", free=100 * GIB),
        bookie("e"),
        bookie("f", free=0),
    ]
    weights = {each.candidate.bookie: each.weight for each in new(cluster, 1).decisions}
    # The median of what is known and not nothing is 1.5 GiB.
    assert weights == pytest.approx(
        {"a": 2 / 3, "b": 2 / 3, "c": 4 / 3, "d": 3.0, "e": 1.0, "f": 2 / 3}
    )
    total = sum(weight for weight in weights.values() if weight is not None)
    found = shares(cluster, 1)
    for name, weight in weights.items():
        assert weight is not None
        assert found[name] == pytest.approx(weight / total, abs=0.03)


def test_without_free_space_all_are_equal() -> None:
    for free in (None, 0):
        found = shares([bookie(name, free=free) for name in "abcd"], 2)
        assert found == pytest.approx(dict.fromkeys("abcd", 0.5), abs=0.03)


def test_a_rack_is_drawn_by_the_weight_of_its_bookies() -> None:
    found = shares(racks("aaabc"), 1)
    assert found == pytest.approx(dict.fromkeys(("a0", "a1", "a2", "b3", "c4"), 0.2), abs=0.03)


def test_every_position_sees_every_bookie() -> None:
    seen = [set(), set(), set()]
    for seed in range(100):
        for position, name in enumerate(new(racks("abcd"), 3, seed=seed).ensemble):
            seen[position].add(name)
    assert all(len(names) == 4 for names in seen)


def test_the_same_seed_gives_the_same_whatever_the_order_of_the_candidates() -> None:
    cluster = racks("aabbccdd")
    shuffled = random.Random(3).sample(cluster, len(cluster))
    assert new(cluster, 5, 3, seed=9) == new(shuffled, 5, 3, seed=9)


def test_a_large_cluster_on_hopeless_racks_takes_a_bounded_search() -> None:
    """Nine cannot part eleven from one another, and to try all their orders would take for ever."""
    found = new(racks("a" * 60 + "bcdefghij"), 20, 2)
    assert sorted(letters(found)) == [*"aaaaaaaaaaabcdefghij"]
    assert len(found.relaxed) == 1
