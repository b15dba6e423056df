"""The search finds what a search without any of its devices finds, folded or not; traces are real and shortest."""

from __future__ import annotations

import random
from functools import cache
from itertools import permutations

import pytest

from bkbox.base.values import replaced
from bkbox.errors import ModelTooLargeError, QuorumSizeError
from proof.model.fingerprints import Fingerprints, Memo, print_of
from proof.model.intern_table import InternTable
from proof.model.options import Options, Status
from proof.model.properties import Safety
from proof.model.search import Statistics, search
from proof.model.space import PackedState, Space, State
from proof.model.symmetry import renamed_client, renamed_part

SMALL = Options(message_loss=False, windows=(Status.OPEN,), crashes=0)
CRASHING = replaced(SMALL, crashes=1)


@cache
def plainly(options: Options) -> tuple[dict[PackedState, int], int, Space]:
    """All states with their levels, and how often one was reached: a dictionary and a list."""
    space = Space(options, Safety(options), fold=False)
    levels = {space.initial: 1}
    queue = [space.initial]
    generated = 1
    for state in queue:
        for successor in space.successors(state):
            generated += 1
            if successor.state not in levels:
                levels[successor.state] = levels[state] + 1
                queue.append(successor.state)
    return levels, generated, space


@pytest.mark.parametrize("options", [SMALL, CRASHING], ids=["small", "crashing"])
def test_it_finds_the_states_that_a_plain_search_finds(options: Options) -> None:
    levels, generated, _ = plainly(options)
    found = search(options).statistics
    assert (found.distinct, found.generated) == (len(levels), generated)
    assert found.levels == max(levels.values())
    assert found.queue == 0


def test_folding_leaves_one_state_of_those_that_differ_in_names() -> None:
    levels, _, space = plainly(SMALL)
    orders = list(permutations(range(2)))

    def names(state: State) -> frozenset[PackedState]:
        return frozenset(
            space.pack(_renamed(state, clients, bookies))
            for clients in orders
            for bookies in orders
        )

    classes = {names(space.unpack(state)) for state in levels}
    found = search(SMALL, fold=True).statistics
    assert found.distinct == len(classes) < len(levels)
    assert found.levels == max(levels.values())


def _renamed(state: State, clients: tuple[int, ...], bookies: tuple[int, ...]) -> State:
    parts = [renamed_part(part, clients) for part in state.parts]
    people = [renamed_client(client, bookies) for client in state.clients]
    return State(
        state.requested,
        state.world,
        tuple(people[clients.index(number)] for number in range(len(clients))),
        tuple(parts[bookies.index(number)] for number in range(len(bookies))),
    )


@pytest.mark.parametrize("fold", [False, True])
def test_a_trace_begins_at_the_beginning_and_tells_every_step(fold: bool) -> None:
    result = search(Options(limbo=False), fold=fold)
    words = [line.words for line in result.trace]
    assert len(words) == result.statistics.levels == 17
    assert words[0] == "at first"
    assert words[1].endswith("creates the ledger")
    assert words[-1].endswith("closes the ledger at 0")
    [crash] = [word for word in words if "crashes" in word]
    assert crash.endswith("crashes: entries gone, fenced")
    assert all(line.changes for line in result.trace)


def test_it_can_be_stopped_and_says_that_it_was() -> None:
    seen: list[Statistics] = []
    result = search(Options(), states_max=1_000, progress=seen.append)
    assert not result.exhausted
    assert result.broken is None
    assert 1_000 <= result.statistics.distinct < 10_000
    assert result.statistics.queue > 0
    assert [each.levels for each in seen] == list(range(1, len(seen) + 1))


def test_sizes_that_do_not_fit_are_refused() -> None:
    for sizes in (Options(write_quorum=3), Options(ack_quorum=3)):
        with pytest.raises(QuorumSizeError):
            search(sizes)


def test_a_table_that_is_full_says_so() -> None:
    table: InternTable[str] = InternTable(2)
    assert [table.number(item) for item in "abca"] == [1, 2, 3, 1]
    assert table[2] == "b"
    with pytest.raises(ModelTooLargeError):
        table.number("d")


def test_prints_and_memos_hold_what_was_put_into_them() -> None:
    rng = random.Random(6)
    pairs = {(rng.getrandbits(64), rng.getrandbits(64)) for _ in range(20_000)}
    pairs |= {(0, 0), (0, 1), (1, 0)}
    prints, memo = Fingerprints(), Memo()
    assert all(prints.add(*pair) for pair in pairs)
    assert not any(prints.add(*pair) for pair in pairs)
    assert prints.count == len(pairs)
    for number, pair in enumerate(pairs, 1):
        assert memo.get(*pair) == 0
        memo.put(*pair, number)
    assert [memo.get(*pair) for pair in pairs] == list(range(1, len(pairs) + 1))
    assert 0 not in {print_of(*pair) for pair in pairs}
