"""Gathers the inputs of placement, and has bkbox/protocol/placement.py choose.

Registered bookies come from the metadata store, racks from the topology, free space from the bookies themselves, and
only if there is a choice.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from bkbox.base.ids import BookieId
from bkbox.client.connection.pool import BookiePool
from bkbox.client.placement.free_space import FreeSpace
from bkbox.client.placement.topology import Topology
from bkbox.errors import MetadataError, NotEnoughBookiesError
from bkbox.metadata.base import MetadataStore, RegisteredBookie
from bkbox.protocol.placement import Candidate, Mode, Placement, place
from bkbox.protocol.quorum import QuorumSizes
from bkbox.wire.metadata.service_info import split_bookie_id


class Placer:
    """Chooses bookies for one client."""

    def __init__(
        self,
        store: MetadataStore,
        pool: BookiePool,
        topology: Topology,
        rng: random.Random,
    ) -> None:
        self._store = store
        self._pool = pool
        self._topology = topology
        self._free_space = FreeSpace(pool.bookie_info)
        self._rng = rng

    async def ensemble(self, sizes: QuorumSizes) -> tuple[BookieId, ...]:
        """Bookies for a new ledger. Raises NotEnoughBookiesError, MetadataError."""
        bookies = await self._store.bookies()
        writable = [bookie for bookie, found in bookies.items() if not found.read_only]
        if len(writable) > sizes.ensemble_size:
            await self._free_space.refresh(writable)
        placement = await self._place(sizes, bookies, ())
        chosen = tuple(bookie for bookie in placement.ensemble if bookie is not None)
        if not placement.is_complete:
            raise NotEnoughBookiesError(placement.shortage(sizes.ensemble_size))
        return chosen

    async def explain(self, sizes: QuorumSizes, exclude: Collection[BookieId] = ()) -> Placement:
        """The result that ``ensemble`` would give now, with every bookie that the cluster knows, running or not.
        Raises MetadataError.
        """
        registered = await self._store.bookies()
        known = dict.fromkeys(await self._store.cookies())
        await self._free_space.refresh(registered)
        return await self._place(sizes, {**known, **registered}, exclude)

    async def replacements(
        self,
        failed: Sequence[BookieId],
        ensemble: Sequence[BookieId],
        write_quorum: int,
        exclude: Collection[BookieId] = (),
    ) -> tuple[BookieId, ...]:
        """Bookies to replace members of the ensemble, in their order, for as many of them as there is one. None is in
        the ensemble or in ``exclude``. Raises MetadataError.
        """
        registered = await self._store.bookies()
        candidates = await self._candidates({**dict.fromkeys(ensemble), **registered})
        by_id = {candidate.bookie: candidate for candidate in candidates}
        seats = [None if bookie in failed else by_id[bookie] for bookie in ensemble]
        placement = place(seats, candidates, write_quorum, self._rng, exclude={*failed, *exclude})
        filled = (placement.ensemble[ensemble.index(bookie)] for bookie in failed)
        return tuple(bookie for bookie in filled if bookie is not None)

    async def distances(self, me: BookieId, bookies: Collection[BookieId]) -> dict[BookieId, int]:
        """The distance of each bookie: 0 itself, 1 the same host, 2 the same rack, 3 elsewhere; empty if unknown."""
        try:
            registered = await self._store.bookies()
        except MetadataError:
            return {}
        requested = {bookie: registered.get(bookie) for bookie in {me, *bookies}}
        found = {each.bookie: each for each in await self._candidates(requested)}
        here = found[me]
        return {
            bookie: _distance(here, there) for bookie, there in found.items() if bookie in bookies
        }

    async def _place(
        self,
        sizes: QuorumSizes,
        bookies: Mapping[BookieId, RegisteredBookie | None],
        exclude: Collection[BookieId],
    ) -> Placement:
        candidates = await self._candidates(bookies)
        seats = [None] * min(sizes.ensemble_size, len(candidates) + 1)
        return place(seats, candidates, sizes.write_quorum, self._rng, exclude=exclude)

    async def _candidates(
        self, bookies: Mapping[BookieId, RegisteredBookie | None]
    ) -> list[Candidate]:
        """Candidates with their racks. ``bookies``: None for those that are not registered."""
        hosts = {bookie: _host(bookie, found) for bookie, found in bookies.items()}
        racks = await self._topology.racks(hosts)
        suspects = self._pool.suspects()
        return [
            Candidate(
                bookie,
                hosts[bookie],
                racks[bookie],
                _mode(found),
                bookie in suspects,
                self._free_space.known(bookie),
            )
            for bookie, found in bookies.items()
        ]


def _distance(here: Candidate, there: Candidate) -> int:
    if there.bookie == here.bookie:
        return 0
    if there.host == here.host:
        return 1
    return 2 if there.rack == here.rack else 3


def _mode(found: RegisteredBookie | None) -> Mode:
    if found is None:
        return Mode.DOWN
    return Mode.READ_ONLY if found.read_only else Mode.WRITABLE


def _host(bookie: BookieId, found: RegisteredBookie | None) -> str:
    address = found.service_info.rpc if found is not None else None
    address = address or split_bookie_id(bookie)
    return address.host if address is not None else bookie
