"""Choice of bookies: eligible ones only, spread over hosts, suspects last."""

from __future__ import annotations

import random

import pytest

from bkbox.client.placement import choose_ensemble, choose_replacements
from bkbox.errors import NotEnoughBookiesError
from bkbox.ids import BookieId
from bkbox.metadata.base import RegisteredBookie
from bkbox.wire.service_info import rpc_service_info


def bookies(*names: str, read_only: tuple[str, ...] = ()) -> dict[BookieId, RegisteredBookie]:
    """``host/bookie`` each."""
    return {
        BookieId(name): RegisteredBookie(name in read_only, rpc_service_info(name.split("/")[0], 1))
        for name in names
    }


def test_every_eligible_bookie_is_chosen_some_time() -> None:
    known = bookies("h/a", "h/b", "h/c", "h/d", "h/e", read_only=("h/e",))
    rng = random.Random(1)
    chosen = [choose_ensemble(known, 3, rng) for _ in range(200)]
    assert all(len(set(ensemble)) == 3 for ensemble in chosen)
    for position in range(3):
        assert {ensemble[position] for ensemble in chosen} == {"h/a", "h/b", "h/c", "h/d"}


def test_an_ensemble_is_spread_over_hosts() -> None:
    known = bookies("x/1", "x/2", "x/3", "y/1", "z/1")
    for seed in range(50):
        three = choose_ensemble(known, 3, random.Random(seed))
        assert {name[0] for name in three} == {"x", "y", "z"}
        four = choose_ensemble(known, 4, random.Random(seed))
        assert sum(name[0] == "x" for name in four) == 2


def test_too_few_bookies_are_named() -> None:
    known = bookies("h/a", "h/b", "h/c", read_only=("h/b",))
    with pytest.raises(NotEnoughBookiesError, match=r"3 bookies are needed, 2 .*: h/a, h/c"):
        choose_ensemble(known, 3, random.Random(1))
    with pytest.raises(NotEnoughBookiesError, match="0 are available: none"):
        choose_ensemble({}, 1, random.Random(1))


def test_replacements_come_from_outside_and_from_other_hosts_first() -> None:
    known = bookies("x/1", "x/2", "y/1", "y/2", "z/1", "v/1", read_only=("v/1",))
    ensemble = [BookieId("x/1"), BookieId("y/1")]
    for seed in range(50):
        two = choose_replacements(known, 2, ensemble, random.Random(seed))
        assert two[0] == "z/1"
        assert two[1] in ("x/2", "y/2")
    everybody = [*known]
    assert choose_replacements(known, 2, everybody, random.Random(1)) == ()


def test_suspects_come_last() -> None:
    known = bookies("h/a", "h/b", "h/c")
    for seed in range(20):
        rng = random.Random(seed)
        assert choose_replacements(known, 1, [], rng, suspects={BookieId("h/a")}) != ("h/a",)
        assert choose_ensemble(known, 3, rng, suspects={BookieId("h/a")})[2] == "h/a"
