"""The properties that are checked in each state.

Of a world, a client or a part a property sees an *outline* only, so that few different ones exist and each combination
is checked once.

``Safety`` checks that every variable is in its domain, and the properties of proof/checks: ``replication`` if there
is no crash, ``held`` if fewer bookies crash than an ack quorum has. ``copies``: a bookie
that acknowledged copies of a closed ledger, and is named by then, does not deny them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from proof.checks import divergence, fragments, held, order, replication
from proof.model.ensembles import fragment_of
from proof.model.options import Options, Status
from proof.model.state import ActorView, Client, Fragments, Role, World
from proof.model.type_invariants import client_in_domain, part_in_domain, world_in_domain

Outline = Hashable

TYPES = "types"
COPIES = "copies"


class Properties(Protocol):
    """A set of properties."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the properties."""

    def of_world(self, world: World) -> Outline:
        """The outline of a world."""

    def of_client(self, client: Client) -> Outline:
        """The outline of a client."""

    def of_part(self, part: ActorView) -> Outline:
        """The outline of a part."""

    def broken(self, seen: Sequence[Any]) -> int:
        """0, or the number (from 1) of the violated one of ``names``. ``seen``: outlines of world, clients, parts."""


class _World(NamedTuple):
    """``closed_last`` is None until the ledger is closed."""

    closed_last: int | None
    fragments: Fragments


class _Client(NamedTuple):
    """``lac``: None while it is idle. ``confirms``: the last entry that it considers confirmed.

    ``firsts``: of its fragments.
    """

    lac: int | None
    confirms: int
    firsts: tuple[int, ...]


class _Part(NamedTuple):
    """``denies``: it denies copies that it acknowledged."""

    entries: tuple[tuple[int, int], ...]
    denies: bool


class Safety:
    """The property that nothing is lost."""

    names = (
        TYPES,
        order.NAME,
        divergence.NAME,
        fragments.NAME,
        replication.NAME,
        held.NAME,
        COPIES,
    )

    def __init__(self, options: Options) -> None:
        self._options = options

    def of_world(self, world: World) -> Outline:
        if not world_in_domain(world, self._options):
            return None
        closed = world.status is Status.CLOSED
        return _World(world.last if closed else None, world.fragments)

    def of_client(self, client: Client) -> Outline:
        if not client_in_domain(client, self._options):
            return None
        return _Client(
            None if client.role is Role.IDLE else client.lac,
            client.lac if client.role in (Role.WRITER, Role.CLOSED) else 0,
            tuple(fragment.first for fragment in client.fragments),
        )

    def of_part(self, part: ActorView) -> Outline:
        if not part_in_domain(part, self._options):
            return None
        return _Part(part.entries, part.copied and not part.entries and not part.limbo)

    def broken(self, seen: Sequence[Any]) -> int:
        name = self._broken(
            seen[0], seen[1 : 1 + self._options.clients], seen[1 + self._options.clients :]
        )
        return 0 if name is None else 1 + self.names.index(name)

    def _broken(
        self,
        world: _World,
        clients: Sequence[_Client],
        parts: Sequence[_Part],
    ) -> str | None:
        def holders(entry: int) -> int:
            ensemble = fragment_of(entry, world.fragments).ensemble
            return sum(
                any(entry == other for other, _ in entries)
                for bookie, (entries, _) in enumerate(parts)
                if ensemble >> bookie & 1
            )

        options = self._options
        if None in (world, *clients, *parts):
            return TYPES
        stored = [part.entries for part in parts]
        if not all(map(order.in_order, stored)):
            return order.NAME
        lacs = [client.lac for client in clients if client.lac is not None]
        if not divergence.no_divergence(world.closed_last, lacs):
            return divergence.NAME
        if not all(fragments.ascending(client.firsts) for client in clients):
            return fragments.NAME
        if options.crashes == 0:
            counts = [holders(entry) for entry in range(1, (world.closed_last or 0) + 1)]
            if not replication.replicated(world.closed_last, counts, options.ack_quorum):
                return replication.NAME
        if options.crashes < options.ack_quorum:
            confirmed = range(1, max(client.confirms for client in clients) + 1)
            if not held.all_held(holders(entry) for entry in confirmed):
                return held.NAME
        named = 0
        for fragment in world.fragments:
            named |= fragment.ensemble
        if any(part.denies and named >> bookie & 1 for bookie, part in enumerate(parts)):
            return COPIES
        return None
