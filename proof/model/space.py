"""The state space: states packed into two words, and each kind of step computed once for what it depends on.

Worlds, clients and parts are interned, and a state is their numbers side by side in *slots*. The upper word has one bit
that is set once a recovery read was sent, the world and the clients; the lower one has the parts. So equal words are
equal states.

A *rule* is an actor: a bookie, the crash of a bookie, a client that takes something from a bookie, a client by itself.
It sees only its slots, and its steps depend on nothing else; so the search (proof/model/exploration.py) asks once for
each content of these slots.

Order: bookies, crashes, then the clients, each first what it takes from the bookies and then what it does by itself.
The state counts at which a counterexample is found depend on it, and on a lost message coming before one that is not;
nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import NamedTuple

from proof.model import bookies, crash, recovery, writer
from proof.model.exploration import Layout
from proof.model.intern_table import InternTable
from proof.model.options import Options
from proof.model.properties import Outline, Properties
from proof.model.state import ActorView, Client, World
from proof.model.steps import Delivery, Step, outcomes
from proof.model.symmetry import renamed_client, renamed_part

PackedState = tuple[int, int]
"""The upper and the lower word of a state."""

_WORLD_BITS = 15
_WORD = (1 << 64) - 1


class State(NamedTuple):
    """A state, unpacked."""

    requested: bool
    world: World
    clients: tuple[Client, ...]
    parts: tuple[ActorView, ...]


class Successor(NamedTuple):
    """A following state, and the description of the step."""

    words: str
    state: PackedState


class Rule(NamedTuple):
    """An actor: the slots that it sees, its steps, the slots that these change."""

    upper_mask: int
    lower_mask: int
    steps: Callable[[State], Iterator[Step]]
    client: int = 0
    bookie: int = 0


Deliveries = list[tuple[int, int]]
"""Pairs of a bookie and the number of a delivery."""


class Space:
    """The states of one configuration and their successors: a model for an Exploration."""

    def __init__(self, options: Options, properties: Properties, *, fold: bool) -> None:
        """``fold``: states that are equal up to names count as one."""
        self.options = options
        self.properties = properties
        self._client_bits = (63 - _WORLD_BITS) // options.clients
        self._part_bits = 64 // options.bookies
        self.worlds: InternTable[World] = InternTable(_WORLD_BITS)
        self.clients: InternTable[Client] = InternTable(self._client_bits)
        self.parts: InternTable[ActorView] = InternTable(self._part_bits)
        self._deliveries: InternTable[Delivery] = InternTable(32)
        self._outlines: InternTable[Outline] = InternTable(8)
        self._rules = tuple(_rules(self))
        # One ensemble is picked of several: if there are several, bookies are not interchangeable.
        alike = options.write_quorum == options.bookies
        self._client_orders = list(permutations(range(options.clients)))[: None if fold else 1]
        self._part_orders = list(permutations(range(options.bookies)))
        self._part_orders = self._part_orders[: None if fold and alike else 1]
        self.initial = self.pack(
            State(
                False,
                World(),
                (Client(acks=(0,) * options.sends),) * options.clients,
                (ActorView(),) * options.bookies,
            )
        )

    def layout(self) -> Layout:
        """The layout of the two words."""
        return Layout(
            world_bits=_WORLD_BITS,
            clients=self.options.clients,
            client_bits=self._client_bits,
            parts=self.options.bookies,
            part_bits=self._part_bits,
            masks=[(rule.upper_mask, rule.lower_mask) for rule in self._rules],
            client_orders=self._client_orders,
            part_orders=self._part_orders,
        )

    def pack(self, state: State) -> PackedState:
        """The words of a state."""
        upper = int(state.requested) | self.worlds.number(state.world) << 1
        for number, client in enumerate(state.clients):
            upper |= self.clients.number(client) << self.client_shift(number)
        lower = 0
        for number, part in enumerate(state.parts):
            lower |= self.parts.number(part) << self.part_shift(number)
        return upper, lower

    def unpack(self, state: PackedState) -> State:
        """The state of these words; a slot that a mask has cleared gets the first value of its kind."""
        upper, lower = state
        world = upper >> 1 & (1 << _WORLD_BITS) - 1
        return State(
            bool(upper & 1),
            self.worlds[world or 1],
            tuple(
                self.clients[self._client_at(upper, client) or 1]
                for client in range(self.options.clients)
            ),
            tuple(
                self.parts[self._part_at(lower, part) or 1] for part in range(self.options.bookies)
            ),
        )

    def successors(self, state: PackedState) -> Iterator[Successor]:
        """All successors of a state, with descriptions."""
        upper, lower = state
        for rule in self._rules:
            for step in rule.steps(self.unpack(state)):
                to_upper, to_lower, deliveries = self._effect(rule, step, self.unpack(state))
                reached = [(lower + to_lower) & _WORD]
                for bookie, delivery in deliveries:
                    part = self._part_at(lower, bookie)
                    reached = [
                        before + (after - part << self.part_shift(bookie))
                        for before in reached
                        for after in self.outcomes(delivery, part)
                    ]
                for after in reached:
                    yield Successor(step.words, ((upper + to_upper) & _WORD, after))

    # ---- the model of an Exploration ------------------------------------------------------------

    def effects(self, rule: int, upper: int, lower: int) -> list[tuple[int, int, Deliveries]]:
        """The effects of a rule: differences of the two words, and deliveries."""
        actor = self._rules[rule]
        state = self.unpack((upper, lower))
        return [self._effect(actor, step, state) for step in actor.steps(state)]

    def outcomes(self, delivery: int, part: int) -> list[int]:
        """The parts that a delivery can lead to."""
        found = outcomes(
            self._deliveries[delivery], self.parts[part], loss=self.options.message_loss
        )
        return [self.parts.number(after) for after in found]

    def outline(self, kind: int, number: int) -> int:
        """The outline, for the properties, of a world (kind 0), a client (1) or a part (2)."""
        seen: Outline
        if kind == 0:
            seen = self.properties.of_world(self.worlds[number])
        elif kind == 1:
            seen = self.properties.of_client(self.clients[number])
        else:
            seen = self.properties.of_part(self.parts[number])
        return self._outlines.number(seen)

    def verdict(self, outlines: int) -> int:
        """0, or the number of the violated property, counted from 1."""
        seen = []
        while outlines:
            seen.append(self._outlines[outlines & 0xFF])
            outlines >>= 8
        return self.properties.broken(seen)

    def renamed_client(self, part_order: int, client: int) -> int:
        """A client after the bookies were renumbered."""
        order = self._part_orders[part_order]
        return self.clients.number(renamed_client(self.clients[client], order))

    def renamed_part(self, client_order: int, part: int) -> int:
        """A part after the clients were renumbered."""
        order = self._client_orders[client_order]
        return self.parts.number(renamed_part(self.parts[part], order))

    # ---- slots ----------------------------------------------------------------------------------

    def client_shift(self, client: int) -> int:
        """The position of a client's number in the upper word."""
        return 1 + _WORLD_BITS + client * self._client_bits

    def part_shift(self, bookie: int) -> int:
        """The position of a part's number in the lower word."""
        return bookie * self._part_bits

    def _client_at(self, upper: int, client: int) -> int:
        return upper >> self.client_shift(client) & (1 << self._client_bits) - 1

    def _part_at(self, lower: int, bookie: int) -> int:
        return lower >> self.part_shift(bookie) & (1 << self._part_bits) - 1

    def world_mask(self) -> int:
        return (1 << _WORLD_BITS) - 1 << 1

    def client_mask(self, client: int) -> int:
        return (1 << self._client_bits) - 1 << self.client_shift(client)

    def part_mask(self, bookie: int) -> int:
        return (1 << self._part_bits) - 1 << self.part_shift(bookie)

    def _effect(self, rule: Rule, step: Step, state: State) -> tuple[int, int, Deliveries]:
        upper = int(step.asks and not state.requested)
        lower = 0
        if step.world is not None:
            upper += self.worlds.number(step.world) - self.worlds.number(state.world) << 1
        if step.client is not None:
            new, old = step.client, state.clients[rule.client]
            change = self.clients.number(new) - self.clients.number(old)
            upper += change << self.client_shift(rule.client)
        if step.part is not None:
            change = self.parts.number(step.part) - self.parts.number(state.parts[rule.bookie])
            lower += change << self.part_shift(rule.bookie)
        deliveries = [
            (bookie, self._deliveries.number(delivery)) for bookie, delivery in step.deliveries
        ]
        return upper, lower, deliveries


def _rules(space: Space) -> Iterator[Rule]:
    options = space.options
    for bookie in range(options.bookies):
        yield _bookie(space, bookie)
    for bookie in range(options.bookies):
        yield _crash(space, bookie)
    for client in range(options.clients):
        for bookie in range(options.bookies):
            yield _taking(space, client, bookie)
        yield _client(space, client)


def _bookie(space: Space, bookie: int) -> Rule:
    def steps(state: State) -> Iterator[Step]:
        return bookies.moves(state.parts[bookie], f"bookie {bookie + 1}", space.options)

    return Rule(0, space.part_mask(bookie), steps, bookie=bookie)


def _crash(space: Space, bookie: int) -> Rule:
    def steps(state: State) -> Iterator[Step]:
        return crash.moves(state.world, state.parts[bookie], bookie, space.options)

    return Rule(space.world_mask(), space.part_mask(bookie), steps, bookie=bookie)


def _taking(space: Space, client: int, bookie: int) -> Rule:
    def steps(state: State) -> Iterator[Step]:
        me, part = state.clients[client], state.parts[bookie]
        yield from writer.receive(me, part, client, bookie, space.options)
        yield from recovery.receive(me, part, state.requested, client, bookie, space.options)

    mask = 1 | space.client_mask(client)
    return Rule(mask, space.part_mask(bookie), steps, client=client, bookie=bookie)


def _client(space: Space, client: int) -> Rule:
    def steps(state: State) -> Iterator[Step]:
        me = state.clients[client]
        yield from writer.moves(state.world, me, client, space.options)
        yield from recovery.moves(state.world, me, client, space.options)

    return Rule(1 | space.world_mask() | space.client_mask(client), 0, steps, client=client)
