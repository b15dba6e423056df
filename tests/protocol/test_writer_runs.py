"""Runs of entries: a machine that is told of whole runs does what one that is told of every entry does."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from bkbox.base.ids import BookieId, EntryId
from bkbox.protocol import effects as fx
from bkbox.protocol import events as ev
from bkbox.protocol.writer import LedgerWriter
from bkbox.wire.codes import Code
from tests.protocol.notation import ledger, show, show_metadata
from tests.protocol.playbook import play

SIZES = ((1, 1, 1), (2, 2, 1), (3, 3, 2), (3, 3, 3), (3, 2, 2), (4, 3, 2), (5, 2, 1))
STEPS = 60


def test_a_run_is_sent_and_acknowledged_at_once() -> None:
    play(
        LedgerWriter(ledger(3, 3, 2), 1),
        """
        >> append a,bb,c
        << adds 0..2 lac -1 length 4 to b1 b2 b3
        >> b1 add 0..2 ok
        >> b2 add 0..1 ok
        << acked 0..1
        >> b3 add 1..2 ok
        << acked 2..2
        """,
    )


def test_stripes_of_a_run() -> None:
    play(
        LedgerWriter(ledger(3, 2, 2), 1),
        """
        >> append a,b,c,d
        << adds 0..3 lac -1 length 4 to b1:0,2,3 b2:0..1,3 b3:1..2
        >> b1 add 0..3 ok
        >> b2 add 0..1 ok
        << acked 0..0
        >> b3 add 1..2 ok
        << acked 1..2
        """.replace("b2:0..1,3", "b2:0,1,3"),
    )


def test_out_of_order_answers_wait_for_what_is_missing() -> None:
    play(
        LedgerWriter(ledger(2, 2, 2), 1),
        """
        >> append a,b,c,d
        << adds 0..3 lac -1 length 4 to b1 b2
        >> b1 add 2..3 ok
        >> b2 add 0..3 ok
        >> b1 add 0 ok
        << acked 0..0
        >> b1 add 1 ok
        << acked 1..3
        """,
    )


def test_what_a_replacement_gets_of_runs() -> None:
    play(
        LedgerWriter(ledger(3, 3, 2), 1),
        """
        >> append a,b,c
        << adds 0..2 lac -1 length 3 to b1 b2 b3
        >> b1 add 0..2 ok
        >> b2 add 0 ok
        << acked 0..0
        >> append d,e
        << adds 3..4 lac 0 length 5 to b1 b2 b3
        >> b2 add 1..2 EIO
        << pick for b2 of b1 b2 b3
        >> picked b4
        << write over 1: OPEN 0:b1,b2,b3 1:b1,b4,b3
        >> b2 add 3..4 ok
        >> written 2
        << adds 1..2 lac -1 length 3 to b4
        << adds 3..4 lac 0 length 5 to b4
        >> b4 add 1..2 ok
        << acked 1..2
        >> b4 add 3..4 ok
        >> b3 add 3 ok
        << acked 3..3
        """,
    )


class Side:
    """One machine, and what came out of it."""

    def __init__(self, machine: LedgerWriter) -> None:
        self.machine = machine
        self.sent: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        """Per bookie, what it was sent and has not answered: token, place in that run, entry."""
        self.bytes_sent: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self.acked = -1
        self.asked: list[fx.Effect] = []
        self.told: list[str] = []

    def handle(self, event: Any) -> None:
        for effect in self.machine.handle(event):
            match effect:
                case fx.SendAdds(first, lac, length, payloads, _, targets):
                    for token, bookie, entries in targets:
                        for place, entry in enumerate(entries):
                            index = entry - first
                            upto = length + sum(map(len, payloads[: index + 1]))
                            self.sent[bookie].append((token, place, entry))
                            self.bytes_sent[bookie].append((entry, lac, upto, payloads[index]))
                case fx.Acked(first, last):
                    assert first == self.acked + 1
                    self.acked = last
                case fx.PickReplacements() | fx.ReadMetadata() | fx.WriteMetadata():
                    self.asked.append(effect)
                case _:
                    self.told.append(show(effect))

    def answer(
        self, bookie: str, start: int, count: int, answer: ev.RequestStatus, step: int
    ) -> None:
        """Answer what this bookie was sent, ``step`` at a time at most, in runs of one token."""
        taken = self.sent[bookie][start : start + count]
        del self.sent[bookie][start : start + count]
        while taken:
            token, place, first = taken[0]
            run = 1
            while run < min(step, len(taken)) and taken[run][:2] == (token, place + run):
                run += 1
            last = taken[run - 1][2]
            self.handle(ev.AddsCompleted(token, EntryId(first), EntryId(last), answer, 1))
            taken = taken[run:]

    def state(self) -> tuple[Any, ...]:
        machine = self.machine
        return (
            self.acked,
            machine.last_add_confirmed,
            machine.length,
            machine.next_entry,
            machine.outstanding,
            machine.failed_bookies,
            type(machine.failure),
            show_metadata(machine.metadata),
            {bookie: [entry for _, _, entry in sent] for bookie, sent in self.sent.items() if sent},
            self.bytes_sent,
            [show(effect) for effect in self.asked],
            self.told,
        )


def store_answer(rng: random.Random) -> Callable[[Side], Any]:
    """The answer to the oldest request to the placement or the store, the same for both sides."""
    fresh = BookieId(f"s{rng.randrange(10**9)}")
    works, spare = rng.random() < 0.8, rng.random() < 0.8

    def make(side: Side) -> Any:
        request = side.asked.pop(0)
        match request:
            case fx.PickReplacements(token):
                return ev.ReplacementsPicked(token, (fresh,) if spare else ())
            case fx.WriteMetadata(token, _, version):
                return (
                    ev.MetadataWritten(token, version + 1) if works else ev.MetadataConflict(token)
                )
        token = request.token
        return ev.MetadataRead(token, side.machine.metadata, side.machine.version)

    return make


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 4))]
)
def test_runs_and_single_entries_come_to_the_same(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        rng = random.Random(seed)
        metadata = ledger(*rng.choice(SIZES))
        runs, singles = Side(LedgerWriter(metadata, 1)), Side(LedgerWriter(metadata, 1))
        sides = (runs, singles)
        failures = rng.choice((0.0, 0.1, 0.3))
        for _ in range(STEPS):
            step = rng.random()
            busy = sorted(bookie for bookie, sent in runs.sent.items() if sent)
            if step < 0.25 and runs.machine.failure is None:
                payloads = [rng.randbytes(rng.randrange(4)) for _ in range(rng.randrange(1, 6))]
                runs.handle(ev.Append(payloads))
                for payload in payloads:
                    if singles.machine.failure is None:
                        singles.handle(ev.Append((payload,)))
                if singles.machine.next_entry < runs.machine.next_entry:
                    # The first of them cannot reach its quorum: the rest is not even taken up.
                    assert runs.told == singles.told
                    break
            elif step < 0.8 and busy:
                bookie = rng.choice(busy)
                pending = len(runs.sent[bookie])
                start = rng.randrange(pending) if rng.random() < 0.2 else 0
                count = rng.randrange(1, pending + 1)
                answer: ev.RequestStatus = Code.EOK
                if rng.random() < failures:
                    answer = rng.choice((Code.EIO, ev.NoResponse.TIMEOUT, Code.EREADONLY))
                runs.answer(bookie, start, count, answer, count)
                singles.answer(bookie, start, count, answer, 1)
            elif step < 0.95 and runs.asked:
                make = store_answer(rng)
                for side in sides:
                    side.handle(make(side))
            elif step > 0.97:
                back = rng.choice(metadata.last_fragment.ensemble)
                for side in sides:
                    side.handle(ev.BookieRecovered(back))
            assert runs.state() == singles.state(), f"seed {seed}"
