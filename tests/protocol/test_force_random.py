"""Deferred sync over bookies that lose their hosts, from hundreds of seeds.

Checked whenever a force is done: every entry up to the LAC is on the disks of AQ bookies. A bookie
that lost its host forgets what was not synced, and answers on a new connection. With all connections
called the same the check must fail for some seed: it can.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bkbox.base.ids import EntryId
from bkbox.protocol import effects as fx
from bkbox.protocol import events as ev
from bkbox.protocol.writer import LedgerWriter
from bkbox.wire.codes import Code
from tests.protocol.notation import ledger

SIZES = ((1, 1, 1), (2, 2, 1), (3, 3, 2), (3, 2, 2), (4, 3, 2))
STEPS = 120


class Bookie:
    """Keeps entry ids; requests and answers of one connection stay in order."""

    def __init__(self) -> None:
        self.synced: set[int] = set()
        self.unsynced: set[int] = set()
        self.connection = 1
        self.requests: list[tuple[int, EntryId | None]] = []
        self.answers: list[Any] = []

    def serve(self) -> None:
        token, entry = self.requests.pop(0)
        if entry is None:
            self.synced |= self.unsynced
            self.unsynced.clear()
            self.answers.append(ev.ForceCompleted(token, Code.EOK, self.connection))
        else:
            self.unsynced.add(entry)
            self.answers.append(ev.AddsCompleted(token, entry, entry, Code.EOK, self.connection))

    def lose_host(self) -> None:
        self.unsynced.clear()
        self.connection += 1
        lost = ev.NoResponse.CONNECTION_LOST
        for token, entry in self.requests:
            self.answers.append(
                ev.ForceCompleted(token, lost, 0)
                if entry is None
                else ev.AddsCompleted(token, entry, entry, lost, 0)
            )
        self.requests.clear()


def unforced(seed: int, *, tell_connections: bool = True) -> str | None:
    """What a force said to be on disk and is not, in one run."""
    rng = random.Random(seed)
    sizes = rng.choice(SIZES)
    metadata = ledger(*sizes)
    bookies = {name: Bookie() for name in metadata.last_fragment.ensemble}
    writer = LedgerWriter(metadata, 1, deferred_sync=True)
    crash = rng.choice((0.0, 0.02, 0.1))

    def take(effects: list[fx.Effect]) -> str | None:
        for effect in effects:
            match effect:
                case fx.SendAdds(targets=targets):
                    for token, name, entries in targets:
                        bookies[name].requests += ((token, entry) for entry in entries)
                case fx.SendForce(targets):
                    for token, name in targets:
                        bookies[name].requests.append((token, None))
                case fx.Forced(lac):
                    for entry in range(lac + 1):
                        copies = sum(entry in bookie.synced for bookie in bookies.values())
                        if copies < metadata.ack_quorum:
                            return f"seed {seed}: entry {entry} of {lac} is on {copies} disks"
        return None

    for _ in range(STEPS):
        bookie = rng.choice(list(bookies.values()))
        if rng.random() < crash:
            bookie.lose_host()
        action = rng.choice(("append", "force", "serve", "serve", "answer", "answer"))
        wrong = None
        if action == "serve" and bookie.requests:
            bookie.serve()
        elif action == "answer" and bookie.answers:
            event = bookie.answers.pop(0)
            if not tell_connections:
                event = replace(event, connection=1)
            wrong = take(writer.handle(event))
        elif action in ("append", "force") and writer.failure is None:
            call = ev.Append([b"x"] * rng.randrange(1, 4)) if action == "append" else ev.Force()
            wrong = take(writer.handle(call))
        if wrong is not None:
            return wrong
    return None


def violations(seeds: range, **switches: bool) -> Iterator[str]:
    return (wrong for seed in seeds if (wrong := unforced(seed, **switches)) is not None)


@pytest.mark.parametrize("seeds", [500, pytest.param(2000, marks=pytest.mark.slow)])
def test_what_is_forced_is_on_disk(seeds: int) -> None:
    assert list(violations(range(seeds))) == []


def test_without_the_connections_the_check_fails() -> None:
    assert any(violations(range(2000), tell_connections=False))
