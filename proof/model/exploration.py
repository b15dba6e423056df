"""A breadth-first search of all states of a model, each checked once.

A state is two words. The *upper* one has a flag in bit 0, the world from bit 1 on and the clients; the *lower* one has
the parts. ``Layout`` gives the positions. The meaning of these is left to the ``Model``; it is asked once for each
thing, and the result is kept:

- A *rule* sees a state through two masks. Its *effects* are differences to add to the two words (modulo 2**64), each
  with *deliveries* for parts: (number of the part, delivery). A delivery turns the number of a part into others, its
  *outcomes*; an effect leads to every combination of outcomes of its deliveries, none if one has none.
- The *outline* of a slot is 8 bits that stand for its number; the *verdict* on a state is a number that depends on all
  of its outlines, world, clients, parts, from the low bits up. 0: all properties hold.

Order: states as they were found, rules in their order, effects in theirs, the last delivery varying fastest.

Folding: of states that are equal up to the names of clients, and of parts, the one with the lowest words represents
all. ``client_orders`` and ``part_orders`` are the renamings, as the new place of each, the identity first.

Only the tables grow with the states: 16 bytes for each in the order of discovery, 12 to 24 for the prints.
"""

from __future__ import annotations

from typing import Protocol

from proof.model.fingerprints import Fingerprints, Memo, word_array

_WORD = 0xFFFF_FFFF_FFFF_FFFF
_BLOCK = 1 << 20
_BLOCK_SHIFT = 20
_FIRST_PROGRAM = 1 << 12
_SUCCESSORS_MAX = 1 << 12
_WORLD, _CLIENT, _PART = 0, 1, 2
_OUTLINE_BITS = 8

Effects = list[tuple[int, int, list[tuple[int, int]]]]
Order = tuple[int, ...]


class Model(Protocol):
    """The model of a search; equal calls must return equal results."""

    def effects(self, rule: int, upper: int, lower: int) -> Effects:
        """The effects of a rule that sees these words through its masks."""

    def outcomes(self, delivery: int, part: int) -> list[int]:
        """The parts into which a delivery can turn a part."""

    def outline(self, kind: int, number: int) -> int:
        """The outline of a slot of kind 0 (world), 1 (client) or 2 (part)."""

    def verdict(self, outlines: int) -> int:
        """0, or the number of the violated property."""

    def renamed_client(self, part_order: int, client: int) -> int:
        """The number of a client after the parts have been renamed."""

    def renamed_part(self, client_order: int, part: int) -> int:
        """The number of a part after the clients have been renamed."""


class Layout:
    """Positions of the slots. ``masks``: pairs of words, one for each rule."""

    __slots__ = (
        "client_bits",
        "client_orders",
        "clients",
        "masks",
        "part_bits",
        "part_orders",
        "parts",
        "world_bits",
    )

    def __init__(
        self,
        *,
        world_bits: int,
        clients: int,
        client_bits: int,
        parts: int,
        part_bits: int,
        masks: list[tuple[int, int]],
        client_orders: list[Order],
        part_orders: list[Order],
    ) -> None:
        self.world_bits = world_bits
        self.clients = clients
        self.client_bits = client_bits
        self.parts = parts
        self.part_bits = part_bits
        self.masks = masks
        self.client_orders = client_orders
        self.part_orders = part_orders


class Exploration:
    """The search. ``found``: number of states; ``generated``: how often one was reached, the first one included.

    ``broken``: the verdict on the last state found, 0 as long as all properties hold; the search ends otherwise.
    """

    __slots__ = (
        "_at",
        "_client_bits",
        "_client_mask",
        "_client_orders",
        "_client_places",
        "_clients",
        "_count",
        "_lower_blocks",
        "_masks",
        "_memos",
        "_model",
        "_outcomes",
        "_outlines",
        "_part_bits",
        "_part_mask",
        "_part_orders",
        "_part_places",
        "_parts",
        "_program",
        "_program_end",
        "_read_block",
        "_read_lower",
        "_read_upper",
        "_renamed_clients",
        "_renamed_parts",
        "_rules",
        "_scratch",
        "_seen",
        "_to_lower",
        "_to_upper",
        "_upper_blocks",
        "_verdicts",
        "_world_bits",
        "_world_mask",
        "_write_lower",
        "_write_upper",
        "broken",
        "found",
        "generated",
    )

    def __init__(self, model: Model, layout: Layout, upper: int, lower: int) -> None:
        """``upper``, ``lower``: the first state."""
        self._model = model
        self._rules = len(layout.masks)
        self._masks = word_array(2 * self._rules)
        for rule, (seen_upper, seen_lower) in enumerate(layout.masks):
            self._masks[2 * rule] = seen_upper
            self._masks[2 * rule + 1] = seen_lower
        self._client_orders = len(layout.client_orders)
        self._client_places = _places(layout.client_orders, layout.clients)
        self._part_orders = len(layout.part_orders)
        self._part_places = _places(layout.part_orders, layout.parts)
        self._world_bits = layout.world_bits
        self._world_mask = (1 << (1 + layout.world_bits)) - 1  # with the flag
        self._clients = layout.clients
        self._client_bits = layout.client_bits
        self._client_mask = (1 << layout.client_bits) - 1
        self._parts = layout.parts
        self._part_bits = layout.part_bits
        self._part_mask = (1 << layout.part_bits) - 1
        self._memos = [Memo() for _ in layout.masks]
        self._outcomes = Memo()
        self._outlines = Memo()
        self._verdicts = Memo()
        self._renamed_clients = Memo()
        self._renamed_parts = Memo()
        self._program = word_array(_FIRST_PROGRAM)
        self._program_end = 1
        self._to_upper = word_array(_SUCCESSORS_MAX)
        self._to_lower = word_array(_SUCCESSORS_MAX)
        self._scratch = word_array(2)
        self._count = 0
        self._seen = Fingerprints()
        self._upper_blocks: list[memoryview] = []
        self._lower_blocks: list[memoryview] = []
        self._at = 0
        self._read_block = -1
        self.found = 0
        self.generated = 0
        self.broken = 0
        self._reach(upper, lower)

    def run(self, until: int) -> int:
        """Expands states up to number ``until``, as far as there are so many; returns the number of expanded states."""
        while self._at < until and self._at < self.found and self.broken == 0:
            self._select(self._at)
            place = self._at & (_BLOCK - 1)
            self._expand(self._read_upper[place], self._read_lower[place])
            self._at += 1
            for index in range(self._count):
                self._reach(self._to_upper[index], self._to_lower[index])
                if self.broken != 0:
                    break
        return self._at

    def state(self, number: int) -> tuple[int, int]:
        """The words of a state, numbered from 0 in the order of discovery."""
        self._select(number)
        place = number & (_BLOCK - 1)
        return self._read_upper[place], self._read_lower[place]

    def parent(self, upper: int, lower: int, first: int, end: int) -> int:
        """The first state from ``first`` on, before ``end``, that this one follows; -1 if none does."""
        for number in range(first, end):
            self._select(number)
            place = number & (_BLOCK - 1)
            self._expand(self._read_upper[place], self._read_lower[place])
            for index in range(self._count):
                self._fold(self._to_upper[index], self._to_lower[index])
                if self._scratch[0] == upper and self._scratch[1] == lower:
                    return number
        return -1

    def representative(self, upper: int, lower: int) -> tuple[int, int]:
        """The state that represents this one."""
        self._fold(upper, lower)
        return self._scratch[0], self._scratch[1]

    # ---- one state ------------------------------------------------------------------------------

    def _expand(self, upper: int, lower: int) -> None:
        """Writes its successors to ``_to_upper`` and ``_to_lower``, ``_count`` of them."""
        self._count = 0
        for rule in range(self._rules):
            seen_upper = upper & self._masks[2 * rule]
            seen_lower = lower & self._masks[2 * rule + 1]
            memo: Memo = self._memos[rule]
            at = memo.get(seen_upper, seen_lower)
            if at == 0:
                at = self._learn_effects(memo, rule, seen_upper, seen_lower)
            effects = self._program[at]
            at += 1
            for _ in range(effects):
                start = self._count
                self._to_upper[start] = (upper + self._program[at]) & _WORD
                self._to_lower[start] = (lower + self._program[at + 1]) & _WORD
                self._count += 1
                deliveries = self._program[at + 2]
                at += 3
                for _delivery in range(deliveries):
                    part = self._program[at]
                    self._combine(start, part, self._program[at + 1], lower)
                    at += 2

    def _combine(self, start: int, part: int, delivery: int, lower: int) -> None:
        """Successors from ``start`` on become all combinations of themselves with the outcomes of a delivery."""
        shift = part * self._part_bits
        before = (lower >> shift) & self._part_mask
        at = self._outcomes.get(delivery, before)
        if at == 0:
            at = self._learn_outcomes(delivery, before)
        choices = self._program[at]
        have = self._count - start
        assert start + have * choices <= _SUCCESSORS_MAX
        # From the last to the first: each goes to places that have been read already.
        for index in range(have - 1, -1, -1):
            from_upper = self._to_upper[start + index]
            from_lower = self._to_lower[start + index]
            for choice in range(choices):
                change = self._program[at + 1 + choice] - before
                place = start + index * choices + choice
                self._to_upper[place] = from_upper
                self._to_lower[place] = (from_lower + (change << shift)) & _WORD
        self._count = start + have * choices

    def _reach(self, upper: int, lower: int) -> None:
        """Enters and judges a reached state if it is new."""
        self.generated += 1
        self._fold(upper, lower)
        upper = self._scratch[0]
        lower = self._scratch[1]
        if not self._seen.add(upper, lower):
            return
        place = self.found & (_BLOCK - 1)
        if place == 0:
            self._write_upper = word_array(_BLOCK)
            self._write_lower = word_array(_BLOCK)
            self._upper_blocks.append(self._write_upper)
            self._lower_blocks.append(self._write_lower)
        self._write_upper[place] = upper
        self._write_lower[place] = lower
        self.found += 1
        self.broken = self._broken_invariant(upper, lower)

    def _select(self, number: int) -> None:
        block = number >> _BLOCK_SHIFT
        if block != self._read_block:
            self._read_block = block
            self._read_upper = self._upper_blocks[block]
            self._read_lower = self._lower_blocks[block]

    # ---- verdicts -------------------------------------------------------------------------------

    def _broken_invariant(self, upper: int, lower: int) -> int:
        outlines = self._outline(_WORLD, (upper & self._world_mask) >> 1)
        place = _OUTLINE_BITS
        shift = 1 + self._world_bits
        for _ in range(self._clients):
            outlines |= self._outline(_CLIENT, (upper >> shift) & self._client_mask) << place
            place += _OUTLINE_BITS
            shift += self._client_bits
        shift = 0
        for _ in range(self._parts):
            outlines |= self._outline(_PART, (lower >> shift) & self._part_mask) << place
            place += _OUTLINE_BITS
            shift += self._part_bits
        known = self._verdicts.get(0, outlines)
        if known == 0:
            known = 1 + self._model.verdict(outlines)
            self._verdicts.put(0, outlines, known)
        return known - 1

    def _outline(self, kind: int, number: int) -> int:
        known = self._outlines.get(kind, number)
        if known == 0:
            known = 1 + self._model.outline(kind, number)
            self._outlines.put(kind, number, known)
        return known - 1

    # ---- folding --------------------------------------------------------------------------------

    def _fold(self, upper: int, lower: int) -> None:
        """Writes the state that represents this one to the first two words of ``_scratch``."""
        self._scratch[0] = upper
        self._scratch[1] = lower
        for client_order in range(self._client_orders):
            for part_order in range(self._part_orders):
                if client_order + part_order > 0:
                    self._rename(upper, lower, client_order, part_order)

    def _rename(self, upper: int, lower: int, client_order: int, part_order: int) -> None:
        """Keeps the renamed state if it is lower than the one in ``_scratch``."""
        new_upper = upper & self._world_mask
        shift = 1 + self._world_bits
        for client in range(self._clients):
            number = self._renamed_client(part_order, (upper >> shift) & self._client_mask)
            place = self._client_places[client_order * self._clients + client]
            new_upper |= number << (1 + self._world_bits + place * self._client_bits)
            shift += self._client_bits
        if new_upper > self._scratch[0]:
            return
        new_lower = 0
        shift = 0
        for part in range(self._parts):
            number = self._renamed_part(client_order, (lower >> shift) & self._part_mask)
            place = self._part_places[part_order * self._parts + part]
            new_lower |= number << (place * self._part_bits)
            shift += self._part_bits
        if new_upper < self._scratch[0] or new_lower < self._scratch[1]:
            self._scratch[0] = new_upper
            self._scratch[1] = new_lower

    def _renamed_client(self, part_order: int, client: int) -> int:
        number = client
        if part_order > 0:
            number = self._renamed_clients.get(part_order, client)
            if number == 0:
                number = self._model.renamed_client(part_order, client)
                self._renamed_clients.put(part_order, client, number)
        return number

    def _renamed_part(self, client_order: int, part: int) -> int:
        number = part
        if client_order > 0:
            number = self._renamed_parts.get(client_order, part)
            if number == 0:
                number = self._model.renamed_part(client_order, part)
                self._renamed_parts.put(client_order, part, number)
        return number

    # ---- effects and outcomes -------------------------------------------------------------------

    def _learn_effects(self, memo: Memo, rule: int, upper: int, lower: int) -> int:
        """Stores a rule's effects; returns their place in the program: their number, and for each the two differences,
        the number of deliveries, and these."""
        effects = self._model.effects(rule, upper, lower)
        at = self._program_end
        self._emit(len(effects))
        for to_upper, to_lower, deliveries in effects:
            self._emit(to_upper & _WORD)
            self._emit(to_lower & _WORD)
            self._emit(len(deliveries))
            for part, delivery in deliveries:
                self._emit(part)
                self._emit(delivery)
        memo.put(upper, lower, at)
        return at

    def _learn_outcomes(self, delivery: int, part: int) -> int:
        """Stores a delivery's outcomes; returns their place in the program: their number, and these."""
        outcomes = self._model.outcomes(delivery, part)
        at = self._program_end
        self._emit(len(outcomes))
        for outcome in outcomes:
            self._emit(outcome)
        self._outcomes.put(delivery, part, at)
        return at

    def _emit(self, word: int) -> None:
        if self._program_end == len(self._program):
            longer = word_array(2 * len(self._program))
            longer[: self._program_end] = self._program
            self._program = longer
        self._program[self._program_end] = word
        self._program_end += 1


def _places(orders: list[Order], count: int) -> memoryview:
    flat = word_array(max(1, len(orders) * count))
    for row, order in enumerate(orders):
        for column, place in enumerate(order):
            flat[row * count + column] = place
    return flat
