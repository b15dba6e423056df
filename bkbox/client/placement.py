"""Which bookies a new ensemble gets, and which take the place of failed ones.

Only registered bookies that take new entries are eligible. The choice is random, spread over
hosts: a second bookie of one host is taken only when each host has given one. Bookies that could
not be reached a moment ago come last: their registration may outlive them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Mapping

from bkbox.errors import NotEnoughBookiesError
from bkbox.ids import BookieId
from bkbox.metadata.base import RegisteredBookie
from bkbox.wire.service_info import split_bookie_id


def choose_ensemble(
    bookies: Mapping[BookieId, RegisteredBookie],
    size: int,
    rng: random.Random,
    suspects: Collection[BookieId] = (),
) -> tuple[BookieId, ...]:
    """An ensemble of ``size`` bookies. Raises NotEnoughBookiesError."""
    found = _in_order(bookies, (), rng, suspects)
    if len(found) < size:
        raise NotEnoughBookiesError(
            f"{size} bookies are needed, {len(found)} are available: {', '.join(sorted(found)) or 'none'}"
        )
    return tuple(found[:size])


def choose_replacements(
    bookies: Mapping[BookieId, RegisteredBookie],
    count: int,
    ensemble: Collection[BookieId],
    rng: random.Random,
    suspects: Collection[BookieId] = (),
) -> tuple[BookieId, ...]:
    """Up to ``count`` bookies outside the ensemble, none if there is none."""
    return tuple(_in_order(bookies, ensemble, rng, suspects)[:count])


def _in_order(
    bookies: Mapping[BookieId, RegisteredBookie],
    exclude: Collection[BookieId],
    rng: random.Random,
    suspects: Collection[BookieId],
) -> list[BookieId]:
    """The eligible bookies, best first."""
    eligible = sorted(b for b in bookies if not bookies[b].read_only and b not in exclude)
    rng.shuffle(eligible)
    taken_of: defaultdict[str, int] = defaultdict(int)
    rank: dict[BookieId, tuple[bool, int]] = {}
    used = [_host(b, bookies.get(b)) for b in exclude]
    for host in used:
        taken_of[host] += 1
    for bookie in eligible:
        host = _host(bookie, bookies[bookie])
        rank[bookie] = (bookie in suspects, taken_of[host])
        taken_of[host] += 1
    return sorted(eligible, key=rank.__getitem__)


def _host(bookie: BookieId, registered: RegisteredBookie | None) -> str:
    address = registered.service_info.rpc if registered is not None else None
    address = address or split_bookie_id(bookie)
    return address.host if address is not None else bookie
