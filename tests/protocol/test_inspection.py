"""What is put together from the reports of bookies, against brute force and against real recoveries."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bkbox.protocol.inspection as module
from bkbox.base.ids import BookieId, EntryId
from bkbox.protocol.diagnosis import RecoveryOutlook, diagnose
from bkbox.protocol.effects import Recovered
from bkbox.protocol.events import NoResponse, ReplacementsPicked, RequestStatus
from bkbox.protocol.force_close_plan import ForceClosePlan, ending
from bkbox.protocol.inspection import Report, coverage, evidence_of, fragments_of
from bkbox.protocol.recovery import LedgerRecovery
from bkbox.wire.availability import Availability, Group, availability_of
from bkbox.wire.codes import Code, Evidence
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from tests.harness.seeds import EXAMPLES
from tests.protocol.modelcluster import Actor, Cluster, InFlight, ModelBookie
from tests.protocol.notation import LEDGER, ledger

SIZES = (
    (1, 1, 1),
    (2, 2, 1),
    (2, 2, 2),
    (3, 3, 1),
    (3, 3, 2),
    (3, 3, 3),
    (3, 2, 2),
    (4, 3, 2),
    (5, 2, 1),
)
P, N, U = Evidence.POSITIVE, Evidence.NEGATIVE, Evidence.UNKNOWN


def report(
    name: str, has: Any = (), *, limbo: bool = False, away: bool = False, **more: Any
) -> Report:
    """A bookie with these entries. ``away``: it does not answer."""
    entries = sorted(has)
    if away:
        return Report(BookieId(name), NoResponse.NOT_REACHED, **more)
    answer: RequestStatus = (
        Code.EOK if entries else Code.EUNKNOWNLEDGERSTATE if limbo else Code.ENOLEDGER
    )
    last = EntryId(max(entries, default=-1))
    listed = availability_of(entries) if entries or limbo else None
    return Report(BookieId(name), answer, True, limbo, listed, last=last, **more)


def reports(*each: Report) -> dict[BookieId, Report]:
    return {one.bookie: one for one in each}


def test_evidence_is_negative_only_from_who_can_tell() -> None:
    here = report("b1", {0, 2})
    assert [here.evidence(entry) for entry in range(4)] == [P, N, P, N]
    limbo = report("b1", {0, 2}, limbo=True)
    assert [limbo.evidence(entry) for entry in range(4)] == [P, U, P, U]
    assert report("b1", limbo=True).evidence(0) is U
    assert report("b1", away=True).evidence(0) is U
    assert report("b1").evidence(0) is N
    unlisted = Report(BookieId("b1"), Code.EOK, reads={1: Code.ENOENTRY, 2: NoResponse.TIMEOUT})
    assert [unlisted.evidence(entry) for entry in range(3)] == [U, N, U]
    rotten = report("b1", {0}, reads={0: NoResponse.BAD_DIGEST})
    assert rotten.evidence(0) is U, "a read is newer than the list, and has seen the copy"


@st.composite
def surveys(draw: st.DrawFn) -> tuple[LedgerMetadata, dict[BookieId, Report]]:
    e, w, a = draw(st.sampled_from(SIZES))
    names = [f"b{number}" for number in range(e + 2)]
    starts = sorted(draw(st.sets(st.integers(1, 30), max_size=2)))
    fragments = tuple(
        Fragment(EntryId(start), tuple(map(BookieId, draw(st.permutations(names))[:e])))
        for start in [0, *starts]
    )
    metadata = LedgerMetadata(LEDGER, e, w, a, LedgerState.OPEN, fragments)
    found = {}
    for name in names:
        has = draw(st.sets(st.integers(0, 40)))
        reads = draw(
            st.dictionaries(
                st.integers(0, 40), st.sampled_from([Code.EOK, Code.ENOENTRY, Code.EIO]), max_size=4
            )
        )
        found[BookieId(name)] = report(
            name, has, limbo=draw(st.booleans()), away=draw(st.booleans()), reads=reads
        )
    return metadata, found


@pytest.mark.parametrize("examples", [40, pytest.param(150, marks=pytest.mark.slow)])
def test_coverage_counts_as_brute_force_does(examples: int) -> None:
    @settings(max_examples=examples)
    @given(surveys(), st.integers(-1, 45), st.sampled_from([1, 7, 1 << 20]))
    def check(survey: tuple[LedgerMetadata, dict[BookieId, Report]], end: int, window: int) -> None:
        metadata, found = survey
        before = module.WINDOW_ENTRIES
        module.WINDOW_ENTRIES = window
        try:
            counted = [
                coverage(metadata, found, entries) for entries, _ in fragments_of(metadata, end)
            ]
        finally:
            module.WINDOW_ENTRIES = before
        copies: dict[int, int] = {}
        lost: set[int] = set()
        uncertain: set[int] = set()
        for entry in range(end + 1):
            says = evidence_of(metadata, found, entry)
            copies[says.count(P)] = copies.get(says.count(P), 0) + 1
            if P not in says:
                (lost if says == [N] * len(says) else uncertain).add(entry)
        total: dict[int, int] = {}
        for each in counted:
            for number, entries in each.copies.items():
                total[number] = total.get(number, 0) + entries
        assert total == copies
        assert {entry for each in counted for run in each.lost for entry in run} == lost
        assert {entry for each in counted for run in each.uncertain for entry in run} == uncertain

    check()


def test_repeated_runs_of_a_list_are_counted() -> None:
    """Two of every three from 1 on, as a striped ledger is listed in folded form."""
    striped = Availability([Group(1, 31, 2, 3)])
    for start in range(40):
        metadata = LedgerMetadata(
            LEDGER, 1, 1, 1, LedgerState.OPEN, (Fragment(EntryId(0), (BookieId("b1"),)),)
        )
        one = Report(BookieId("b1"), Code.EOK, listed=striped, last=EntryId(32))
        counted = coverage(metadata, reports(one), range(start, 40))
        assert counted.copies.get(1, 0) == sum(entry in striped for entry in range(start, 40))


# ---- what a recovery would come to -----------------------------------------------------------------------


class Telling(ModelBookie):
    """In limbo it gives its last entry, as bkbox's bookies do and Java's do not."""

    def read(self, entry_id: int, *, fence: bool) -> tuple[Code, VerifiedEntry | None]:
        if entry_id == -1 and self.entries:
            entry_id = max(self.entries)
        return super().read(entry_id, fence=fence)


def stand(cluster: Cluster, away: set[str]) -> dict[BookieId, Report]:
    """What the bookies of a model cluster would report."""
    found = {}
    for name, bookie in cluster.bookies.items():
        if name in away:
            found[name] = report(name, away=True)
            continue
        answer, last = bookie.read(-1, fence=False)
        listed = availability_of(sorted(bookie.entries))
        lac = EntryId(-1) if last is None else last.lac
        end = EntryId(max(bookie.entries, default=-1))
        found[name] = Report(name, answer, None, bookie.limbo, listed, lac=lac, last=end)
    return found


def recover(cluster: Cluster, away: set[str]) -> LedgerMetadata | None:
    """A recovery that hears of the highest LAC first, and a 'no' before the entry; None: it was aborted."""
    actor = Actor(LedgerRecovery(cluster.metadata, cluster.version))
    actor.start()
    for _ in range(2000):
        if actor.outcome is not None or actor.error is not None:
            break
        stands = stand(cluster, away)

        def order(one: InFlight, stands: dict[BookieId, Report] = stands) -> int:
            said = stands.get(BookieId(one.to))
            if said is None:  # the metadata store
                return -99
            return -said.lac if one.entry == -1 else said.evidence(one.entry or 0) is not N

        actor.in_flight.sort(key=order)
        request = actor.in_flight.pop(0)
        if request.to == "placement":
            spares = [each for each in cluster.bookies if each.startswith("s")]
            free = [each for each in spares if each not in request.effect.ensemble]
            actor.handle(
                ReplacementsPicked(request.token, tuple(free[: len(request.effect.failed)]))
            )
        elif request.to in away:
            actor.handle(cluster.no_answer(request))
        else:
            actor.handle(cluster.carry_out(request))
    else:
        raise AssertionError(f"it never ends: {[(r.to, r.text) for r in actor.in_flight[:9]]}")
    if actor.outcome is None:
        return None
    assert isinstance(actor.outcome, Recovered)
    return actor.outcome.metadata


def test_a_diagnosis_says_what_a_recovery_comes_to() -> None:
    unlucky, outcomes = 0, dict.fromkeys(RecoveryOutlook, 0)
    for seed in range(1000):
        rng = random.Random(seed)
        cluster = Cluster(ledger(*rng.choice(SIZES)), spares=tuple(f"s{n}" for n in range(5)))
        ensemble = cluster.metadata.last_fragment.ensemble
        if seed % 2:
            cluster.bookies |= {name: Telling() for name in ensemble}
        lac = rng.randrange(-1, 4)
        for entry in range(lac + 1 + rng.randrange(3)):
            for bookie in ensemble:
                if rng.random() < 0.8:
                    told = EntryId(rng.randrange(-1, min(entry, lac + 1)))
                    cluster.bookies[bookie].entries[entry] = VerifiedEntry(
                        LEDGER, EntryId(entry), told, 0, b""
                    )
        for bookie in ensemble:
            cluster.bookies[bookie].limbo = rng.random() < 0.2
        away = {bookie for bookie in ensemble if rng.random() < 0.15}
        found = diagnose(cluster.metadata, stand(cluster, away))
        outcomes[found.prospect] += 1
        closed = recover(cluster, away)
        if found.prospect is RecoveryOutlook.CLOSES and closed is None:
            # A 'no' to the first entry was heard first, and the one before it gives no length.
            assert P not in evidence_of(cluster.metadata, stand(cluster, away), found.lac), seed
            unlucky += 1
            continue
        assert (closed is not None) == (found.prospect is RecoveryOutlook.CLOSES), (seed, found)
        if closed is not None:
            assert closed.last_entry == found.end_at_least, seed
            assert found.end is not None
            assert closed.last_entry <= found.end, seed
        else:
            assert found.reason, seed
            assert found.what_to_do, seed
            assert found.silent, seed
    del outcomes[RecoveryOutlook.NOTHING]
    assert min(outcomes.values()) >= 3, outcomes
    assert unlucky < 30


def test_the_reason_names_who_cannot_tell_and_how_many_recovery_bears() -> None:
    found = diagnose(
        ledger(3, 3, 2),
        reports(report("b1", {0}, limbo=True), report("b2", {0, 1}), report("b3", {0}, limbo=True)),
    )
    assert (found.prospect, found.entry, found.limbo) == (RecoveryOutlook.NO_END, 2, ("b3", "b1"))
    assert (
        "entry 2 may have been acknowledged: b3 is in limbo and cannot tell, b1 is in limbo"
        in found.reason
    )
    assert "2 of 3 bookies of a write set" in found.reason
    assert "recovery bears 1 such bookie in a write set (AQ - 1), here there are 2" in found.reason
    assert "bkbox ledger end 7 --accept-loss" in found.what_to_do
    one = diagnose(
        ledger(3, 3, 2),
        reports(report("b1", {0}, limbo=True), report("b2", {0, 1}), report("b3", {0})),
    )
    assert (one.prospect, one.end, one.reason) == (RecoveryOutlook.CLOSES, 1, "")


def test_who_is_away_is_to_be_brought_back_first() -> None:
    found = diagnose(
        ledger(3, 3, 2),
        reports(report("b1", {0}), report("b2", away=True), report("b3", away=True)),
    )
    assert found.prospect is RecoveryOutlook.NO_FENCE
    assert "b2 cannot be reached, b3 cannot be reached" in found.reason
    assert found.what_to_do.startswith("bring back b2, b3")


# ---- ending ---------------------------------------------------------------------------------------------


def plan(
    has: Any, *, lac: int = -1, plug: bool = False, closed_at: int | None = None
) -> ForceClosePlan:
    """b1 has these entries, b2 and b3 are in limbo with nothing."""
    metadata = ledger(3, 3, 2)
    if closed_at is not None:
        metadata = ledger(3, 3, 2, state=LedgerState.CLOSED, last_entry=closed_at)
    return ending(
        metadata,
        reports(
            report("b1", has, lac=EntryId(lac)), report("b2", limbo=True), report("b3", limbo=True)
        ),
        plug=plug,
    )


def ids(ranges: tuple[range, ...]) -> set[int]:
    return {entry for each in ranges for entry in each}


@pytest.mark.parametrize(
    ("has", "lac", "plug", "end", "holes", "acknowledged", "dropped"),
    [
        ((), -1, False, -1, set(), set(), set()),
        ((0, 1, 2), 1, False, 2, set(), set(), set()),
        ((0, 1, 3, 4), 1, False, 1, set(), set(), {3, 4}),
        ((0, 1, 3, 4), 1, True, 4, {2}, set(), set()),
        ((0, 3, 4), 3, False, 4, {1, 2}, {1, 2}, set()),
        ((0, 3, 4), 3, True, 4, {1, 2}, {1, 2}, set()),
        ((0, 1), 3, False, 1, set(), {2, 3}, set()),
        ((0, 1), 3, True, 1, set(), {2, 3}, set()),
        ((0, 5), 2, False, 0, set(), {1, 2}, {5}),
        ((0, 5), 2, True, 5, {1, 2, 3, 4}, {1, 2}, set()),
    ],
)
def test_where_a_ledger_would_end(
    has: tuple[int, ...],
    lac: int,
    plug: bool,
    end: int,
    holes: set[int],
    acknowledged: set[int],
    dropped: set[int],
) -> None:
    found = plan(has, lac=lac, plug=plug)
    assert found.closes
    assert (found.end, ids(found.holes)) == (end, holes)
    assert (ids(found.acknowledged), ids(found.dropped)) == (acknowledged, dropped)
    assert found.nothing_to_do == ""


def test_a_closed_ledger_can_only_be_plugged() -> None:
    assert "every entry is found" in plan(range(3), closed_at=2).nothing_to_do
    assert "--plug" in plan((0, 2), closed_at=2).nothing_to_do
    found = plan((0, 2), closed_at=3, plug=True)
    assert (found.nothing_to_do, ids(found.holes), found.closes) == ("", {1, 3}, False)


def test_what_recovery_can_do_is_left_to_it() -> None:
    healthy = ending(
        ledger(3, 3, 2), reports(*(report(name, {0}) for name in ("b1", "b2", "b3"))), plug=False
    )
    assert "bkbox ledger recover 7" in healthy.nothing_to_do


def test_more_loss_than_agreed_is_noticed() -> None:
    agreed = plan((0, 1, 2), lac=0)
    assert not plan((0, 1, 2), lac=0).gives_up_more_than(agreed)
    assert not plan((0, 1, 2, 3), lac=0).gives_up_more_than(agreed)
    assert plan((0, 1), lac=0).gives_up_more_than(agreed)
    assert plan((0, 1, 2, 4), lac=0).gives_up_more_than(agreed), "entry 4 was not to be dropped"
    assert plan((0, 2), lac=1).gives_up_more_than(agreed)


@given(st.sets(st.integers(0, 12)), st.integers(-1, 12), st.booleans())
@settings(max_examples=2 * EXAMPLES, deadline=None)
def test_every_entry_is_kept_or_named(has: set[int], lac: int, plug: bool) -> None:
    found = plan(has, lac=lac, plug=plug)
    assert found.end == -1 or found.end in has
    kept = set(range(found.end + 1)) - ids(found.holes)
    assert kept | ids(found.dropped) == has
    assert ids(found.acknowledged) == set(range(lac + 1)) - kept, (
        "all that an LAC says and nobody gives"
    )
    if not plug and found.end > lac:
        assert all(entry in has for entry in range(lac + 1, found.end + 1))


def three(*, lac: int = -1, **has: Any) -> ForceClosePlan:
    """``b1=…``: its entries; None: it is in limbo with nothing."""
    found = [
        report(name, limbo=True) if entries is None else report(name, entries, lac=EntryId(lac))
        for name, entries in has.items()
    ]
    return ending(ledger(3, 3, 2), reports(*found), plug=False)


@pytest.mark.parametrize(
    ("found", "doubtful", "unknown_after"),
    [
        (three(b1=None, b2=None, b3=None), set(), -1),
        (three(b1=range(5), b2=None, b3=None, lac=3), set(), 4),
        (three(b1=(0, 5), b2=None, b3=None, lac=2), {3, 4}, 5),
        (three(b1=(0, 1), b2=(0, 1), b3=None, lac=0), set(), None),
        (three(b1=(0,), b2=(0,), b3=None, lac=3), set(), None),
    ],
)
def test_how_far_the_loss_is_known(
    found: ForceClosePlan, doubtful: set[int], unknown_after: int | None
) -> None:
    assert (ids(found.maybe_acknowledged), found.unknown_after) == (doubtful, unknown_after)


@given(st.lists(st.sets(st.integers(0, 8)), min_size=3, max_size=3), st.integers(-1, 8))
@settings(max_examples=2 * EXAMPLES, deadline=None)
def test_no_acknowledged_entry_is_left_out(had: list[set[int]], forgets: int) -> None:
    """Every bookie in limbo may have had anything; whatever two of three had was acknowledged, in order."""
    acknowledged = -1
    while sum(acknowledged + 1 in each for each in had) >= 2:
        acknowledged += 1
    kept = {f"b{at + 1}": None if at <= forgets % 4 - 1 else has for at, has in enumerate(had)}
    found = three(**kept)
    if found.nothing_to_do:
        return
    named = ids(found.acknowledged) | ids(found.maybe_acknowledged) | ids(found.dropped)
    for entry in range(acknowledged + 1):
        is_kept = entry <= found.end and not any(entry in hole for hole in found.holes)
        unknown = found.unknown_after is not None and entry > found.unknown_after
        assert is_kept or entry in named or unknown, (entry, found)


def test_all_of_a_closed_ledger_was_promised() -> None:
    found = plan((0, 2), closed_at=3, plug=True)
    assert (ids(found.acknowledged), found.unknown_after) == ({1, 3}, None)
