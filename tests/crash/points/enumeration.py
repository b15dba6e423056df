"""All crash points of a recording, and what may be left at each of them.

At each point there is what a killed process leaves, also in the middle of a write, and what a lost host may leave,
in several ways (``LOSSES``). The random ones depend on a seed, the scenario, the mode and the point, so a failure
says what to run to see it again:

    python -m tests.crash.points SCENARIO MODE --seed SEED --point POINT
"""

from __future__ import annotations

import copy
import hashlib
import random
import shutil
import traceback
from collections.abc import Callable, Collection, Container, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from bkbox.storage.log.records import AckAfter
from tests.crash.points.filesystem import (
    PAGE_BYTES,
    SECTOR_BYTES,
    Call,
    Loss,
    Order,
    Tree,
    Volume,
    build,
)
from tests.crash.points.miniature import BOOT, LEDGERS
from tests.crash.points.promises import Promises
from tests.crash.points.recorder import Recording, record
from tests.crash.points.scenarios import (
    LATER_LEDGER,
    RECOVERY,
    SCENARIOS,
    Scenario,
    miniature,
)
from tests.crash.points.verdict import Crash, examine

NOTHING, ALL = Loss(Order.SYNCED, 0), Loss(Order.ALL, 1)
LOSSES = (
    NOTHING,
    ALL,
    Loss(Order.ALL, 0),
    Loss(Order.SYNCED, 1),
    Loss(Order.JOURNALED, 0),
    Loss(Order.JOURNALED, 0.5),
    Loss(Order.JOURNALED, 0.5, SECTOR_BYTES),
    Loss(Order.JOURNALED, 1),
    Loss(Order.SINGLY, 0.5, SECTOR_BYTES),
    Loss(Order.SINGLY, 0.9, SECTOR_BYTES),
    Loss(Order.SINGLY, 0.2, PAGE_BYTES),
    Loss(Order.ALL, 0.5, SECTOR_BYTES),
    Loss(Order.ALL, 0.5, PAGE_BYTES),
)


@dataclass(frozen=True, slots=True)
class State:
    """One thing that a crash may leave; ``loss`` is None after a mere kill. ``promises`` are its own copy."""

    point: int
    how: str
    loss: Loss | None
    tree: Tree
    promises: Promises


@dataclass(frozen=True, slots=True)
class Failure:
    """A broken promise, and how to see it again."""

    point: int
    how: str
    call: str
    text: str

    def __str__(self) -> str:
        return f"point {self.point} (before {self.call}), {self.how}: {self.text}"


@dataclass(slots=True)
class Tally:
    """What was enumerated. ``states`` were examined; those that were equal to one before were not, again. ``rebuilt``:
    in how many of them the start had to make the index anew.
    """

    points: int = 0
    states: int = 0
    equal: int = 0
    rebuilt: int = 0
    failures: list[Failure] = field(default_factory=list)

    def __iadd__(self, other: Tally) -> Tally:
        self.points += other.points
        self.states += other.states
        self.equal += other.equal
        self.rebuilt += other.rebuilt
        self.failures += other.failures
        return self

    def __str__(self) -> str:
        return (
            f"{self.points} points, {self.states} states ({self.equal} more were equal to one of them), "
            f"{self.rebuilt} with the index made anew, {len(self.failures)} failures"
        )


Pick = Callable[[random.Random], Iterator[Loss]]
"""The ways in which the host is lost at one point."""


def every_loss(rounds: int) -> Pick:
    """All, those that depend on chance ``rounds`` times."""

    def pick(_rng: random.Random) -> Iterator[Loss]:
        for again in range(rounds):
            yield from LOSSES if again == 0 else LOSSES[4:]

    return pick


def nothing_synced_later(_rng: random.Random) -> Iterator[Loss]:
    """The plainest: what was not synced is gone."""
    yield NOTHING


def one_loss(rng: random.Random) -> Iterator[Loss]:
    """One of them."""
    yield rng.choice(LOSSES)


def states(
    recording: Recording, pick: Pick, seed: str, only: Container[int] | None = None
) -> Iterator[State]:
    """What may be left, point by point."""
    volume, promises = copy.deepcopy((recording.volume, recording.promises))
    point = 0
    for call in [*recording.calls, Call("B")]:
        if call.kind == "N":
            promises.read(call.data)
            continue
        if only is None or point in only:
            rng = random.Random(f"{seed} {point}")
            for how, loss, tree in _at(volume, call, pick, rng):
                yield State(point, how, loss, tree, copy.deepcopy(promises))
        volume.apply(call)
        point += 1


def _at(
    volume: Volume, call: Call, pick: Pick, rng: random.Random
) -> Iterator[tuple[str, Loss | None, Tree]]:
    yield "killed", None, volume.written()
    if call.kind == "W" and len(call.data) > 1:
        size = _part(call, rng)
        part = copy.deepcopy(volume)
        part.apply(Call("W", call.inode, call.a, data=call.data[:size]))
        yield f"killed after {size} of {len(call.data)} bytes", None, part.written()
    for loss in pick(rng):
        yield f"host lost: {loss}", loss, volume.crashed(loss, rng)


def _part(call: Call, rng: random.Random) -> int:
    """How much of a write a kill leaves: whole pages of the file; a little less where it has no whole one."""
    end = call.a + len(call.data)
    for block in (PAGE_BYTES, SECTOR_BYTES):
        ends = range((call.a // block + 1) * block, end, block)
        if ends:
            return rng.choice(ends) - call.a
    return 0


class Harness:
    """Enumerates one scenario in one mode, in a folder of its own."""

    def __init__(self, scenario: Scenario, mode: AckAfter, root: Path) -> None:
        self.scenario, self.mode, self.root = scenario, mode, root
        self.boot_id = BOOT

    def record(self, *, lie: str = "", fault: str = "none", kill: str = "") -> Recording:
        """Prepare the folder and run the scenario."""
        empty(self.root)
        promises = Promises()
        self.scenario.prepare(miniature(self.scenario, self.root, self.mode, promises.note))
        return self.run(promises, lie=lie, fault=fault, kill=kill)

    def run(
        self, promises: Promises, *, lie: str = "", fault: str = "none", kill: str = ""
    ) -> Recording:
        """Run the scenario on the folder as it is."""
        arguments = [
            self.scenario.name,
            self.mode.value,
            str(self.root),
            "{notes}",
            fault,
            self.boot_id,
            promises.record,
        ]
        module = "tests.crash.points.child"
        return record(self.root, module, arguments, promises, lie=lie, kill=kill)

    def recovery_from(self, state: State) -> tuple[Harness, Recording]:
        """Leave the folder as a crash has left it, and run the start after that, to be crashed as well."""
        scenario = replace(
            SCENARIOS[RECOVERY],
            segment_bytes_max=self.scenario.segment_bytes_max,
            disks=self.scenario.disks,
            may_lose=state.loss is not None and self.mode is AckAfter.WRITE,
            rebuilds=self.scenario.rebuilds or _is_disorder(state.loss),
        )
        harness = Harness(scenario, self.mode, self.root)
        promises = copy.deepcopy(state.promises)
        if state.loss is not None:
            harness.boot_id = "the boot of the recovery"
            promises.deferred = set()
        empty(self.root)
        build(state.tree, self.root)
        return harness, harness.run(promises)

    def enumerate(
        self, recording: Recording, pick: Pick, seed: str, only: Collection[int] | None = None
    ) -> Tally:
        """Examine what may be left at each point, or at some only."""
        tally = Tally(points=recording.points if only is None else len(only))
        seen: set[bytes] = set()
        calls = [call for call in recording.calls if call.kind != "N"]
        for state in states(recording, pick, f"{seed} {self.scenario.name} {self.mode}", only):
            digest = _digest(state)
            if digest in seen:
                tally.equal += 1
                continue
            seen.add(digest)
            tally.states += 1
            text, rebuilt = self.examine(state, random.Random(digest))
            tally.rebuilt += rebuilt
            if text is not None:
                call = str(calls[state.point]) if state.point < len(calls) else "the end"
                tally.failures.append(Failure(state.point, state.how, call, text))
        return tally

    def examine(self, state: State, rng: random.Random) -> tuple[str | None, bool]:
        """Build one state and judge it: what is wrong, None if nothing is; and whether the index had to be rebuilt."""
        empty(self.root)
        build(state.tree, self.root)
        return self.judge(state, rng)

    def judge(self, state: State, rng: random.Random) -> tuple[str | None, bool]:
        """Judge what is in the folder."""
        scenario, loss = self.scenario, state.loss
        bookie = miniature(scenario, self.root, self.mode, state.promises.note)
        bookie.boot_id = self.boot_id
        bookie.metadata.recall(state.promises.record)
        if scenario.name == RECOVERY:
            bookie.ledgers = [*LEDGERS, LATER_LEDGER]
        crash = Crash(
            host=loss is not None,
            may_suspect=scenario.may_lose,
            may_have_lost=scenario.may_lose,
            rebuilds=_is_disorder(loss) or scenario.rebuilds,
        )
        try:
            if not state.promises.prepared:
                bookie.init()  # as the operator, who was not told that it is done
            return None, examine(bookie, state.promises, crash, rng)
        except AssertionError as error:
            return str(error), False
        except Exception:  # noqa: BLE001 whatever it is, it is a finding, and there is more to enumerate
            return traceback.format_exc(), False


def _is_disorder(loss: Loss | None) -> bool:
    """LevelDB relies on the order of names and sizes; where there is none, its folder may be broken."""
    return loss is not None and loss.names is not Order.JOURNALED


def empty(folder: Path) -> None:
    """Make it an empty folder."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _digest(state: State) -> bytes:
    found = hashlib.blake2b(repr((state.loss is None, state.promises)).encode(), digest_size=16)
    for path, data in state.tree.items():
        found.update(path.encode() + (b"/" if data is None else b"=%d:" % len(data) + data))
    return found.digest()
