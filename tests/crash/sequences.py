"""All sequences of one to three operations of a disk, with a crash, or an error, at every call that changes anything,
and with an error at every read of the start that follows:

    python -m tests.crash.sequences [--length 3] [--mode MODE…] [--losses 4] [--seed 1]

The disk is the real store over the simulated file system (proof/sim/world/files.py). What happens in an operation that
is not the last of its sequence happens in a shorter one as well, so that each is struck in its last operation only: at
every change, and after the last one, by each of ``BLOWS``. Then the process is killed, or the host lost, which leaves
this or that of what was not synced. The next process has to suspect a loss exactly where there may be one, and to have
all that was committed (``Model``); it is killed, or the host lost once more, and the same is asked again. A start that
cannot read something says so, or has all the same; and the next one, which can, finds all as it was.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bkbox.errors import DiskError, DiskFailedError, DiskFullError
from bkbox.storage.disk import dirty_marker
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.format_disk import format_disk
from bkbox.storage.disk.replay import UNRESOLVED_LOSS
from bkbox.storage.files import Files
from bkbox.storage.index.ordered_store import OrderedStore
from bkbox.storage.log import segmented_log
from bkbox.storage.log.records import (
    AckAfter,
    LedgerRecord,
    Record,
    forget_record,
    lac_record,
    ledger_record,
)
from proof.sim.patching import replaced
from proof.sim.world.disk import Disk
from proof.sim.world.files import FaultTrigger, SimFiles
from proof.sim.world.index import SimIndex
from proof.sim.world.loop import Crash, Process, Scheduler
from tests.storage.bench import IDENTITY, KEY, defer, entry, put
from tests.storage.disk.test_crash import Model, check_report, packet_of

_FAILURES_MAX = 50
"""After so many a blow ends with its first one: where every point fails there is no other end."""

NOT_WRITTEN = "what was written did not reach the device"

DISK, JOURNAL = Path("/h/disk"), Path("/h/journal")


Operation = Callable[["Bench"], None]
Blow = Callable[["Bench"], bool]
"""What befalls the process in the middle of a change; whether it is dead then."""


class Bench:
    """One disk, its journal, its index and its present process, from an empty disk on."""

    def __init__(self, mode: AckAfter, seed: str) -> None:
        self.rng = random.Random(seed)
        self.mode = mode
        self.model = Model()
        self.disks = [Disk(DISK), Disk(JOURNAL)]
        self._index = SimIndex()
        self._boot = self._runs = 0
        self.was_failing = False
        """Whether a change failed, as ordered: the system may say so to a later start."""
        self._entries = 0
        self._ambush = FaultTrigger()
        self._store: DiskStore | None = None
        self._next_process()
        format_disk(self.files, DISK, IDENTITY, create_index=lambda *_: None)
        self.files.fsync_dir(DISK)
        self.start()
        self.put(ledger_record(1, LedgerRecord(KEY)), *self.new_entries(2))

    @property
    def store(self) -> DiskStore:
        assert self._store is not None
        return self._store

    @property
    def boot_id(self) -> str:
        return f"boot {self._boot}"

    def new_entries(self, count: int) -> list[Record]:
        first, self._entries = self._entries, self._entries + count
        return [entry(1, number, b"x" * 700) for number in range(first, first + count)]

    def put(self, *records: Record) -> None:
        self.model.in_flight = list(records)
        put(self.store, *records)
        self.model.commit(deferred=False)

    def defer(self, *records: Record) -> None:
        self.model.in_flight = list(records)
        defer(self.store, *records)
        self.model.commit(deferred=True)

    def synced(self) -> None:
        """All that was deferred is durable."""
        self.model.unsynced.clear()

    # ---- processes ------------------------------------------------------------------------------

    def _next_process(self) -> None:
        self._store = None
        self.process = Process(Scheduler(0, traced=False), "worker")
        self.files = SimFiles(self.disks, self.process, self.rng, self._ambush)

    def struck(self, operation: Operation, change: int, blow: Blow) -> bool:
        """Do it, with a blow in the middle of the n-th change from now; whether it came to that."""
        fell: list[bool] = []

        def strike() -> bool:
            fell.append(True)
            return blow(self)

        self._ambush.lay(change, strike)
        try:
            operation(self)
        except Crash:
            return True
        except DiskError:
            if not fell:
                raise
            if self._store is not None:
                self.model.check(self._store, host_crash=False, may_miss_entries=False)
        finally:
            self._ambush.lay(0, strike)
            for disk in self.disks:
                disk.fail_syncs = 0
        return bool(fell)

    def die(self) -> bool:
        self.process.die("here")
        return True

    def fail_from_now_on(self) -> bool:
        self._ambush.changes = 1
        self.was_failing = True
        raise DiskFailedError("an error of the disk, as ordered")

    def _open_index(self, _files: Files, _disk: Path, host_crash: bool) -> OrderedStore:
        if host_crash:
            self._index = self._index.lose_host(self.rng)
        return self._index

    def start(self) -> None:
        """The next process of the bookie: classify, replay, check, settle."""
        self._runs += 1
        run = dirty_marker.Incarnation(self.boot_id, self.mode, f"run {self._runs}")
        before = dirty_marker.begin_run(self.files, DISK, run)
        host_crash = before is not None and before.is_host_crash(run.boot_id)
        store = self._open()
        report = store.replay(host_crash, is_clean=before is None)
        self._store = store
        if self.was_failing and any(
            NOT_WRITTEN in each or each == UNRESOLVED_LOSS for each in report.damaged
        ):
            assert not report.trusted
            host_crash = True
        else:
            check_report(report, self.mode, host_crash)
        lost = host_crash and self.mode is AckAfter.WRITE
        self.model.check(store, host_crash=host_crash, may_miss_entries=lost)
        self.model.accept(store)
        store.resolve_losses()
        dirty_marker.commit(self.files, DISK, run, before)
        self._run = run

    def start_with_bad_read(self, disk: int, read: int) -> bool:
        """A start whose n-th read of a disk fails, and that ends there, killed; whether it came to that."""
        bad = self.disks[disk]
        bad.fail_reads, bad.good_reads = 1, read - 1
        try:
            before = dirty_marker.begin_run(
                self.files, DISK, dirty_marker.Incarnation(self.boot_id, self.mode, "bad")
            )
            store = self._open()
            host_crash = before is not None and before.is_host_crash(self.boot_id)
            report = store.replay(host_crash, is_clean=before is None)
            came_to_it = not bad.fail_reads
            bad.fail_reads = 0
            if report.trusted:
                self.model.check(store, host_crash=host_crash, may_miss_entries=False)
        except DiskError:
            came_to_it = not bad.fail_reads
            if not came_to_it:
                raise
        finally:
            bad.fail_reads = bad.good_reads = 0
            self.kill()
        return came_to_it

    def _open(self) -> DiskStore:
        return DiskStore.open(
            self.files,
            DISK,
            ack_after=self.mode,
            journal_dir=JOURNAL,
            segment_bytes_max=4_000,
            checkpoint_bytes=1 << 20,
            now_ms=lambda: 1_000,
            open_index=self._open_index,
        )

    def stop(self) -> None:
        store, self._store = self.store, None  # what fails on the way leaves nothing to read from
        store.close()
        self.synced()
        assert dirty_marker.clear(self.files, DISK, self._run)
        self._next_process()

    def kill(self) -> None:
        self._next_process()

    def lose_host(self) -> None:
        self._boot += 1
        for disk in self.disks:
            disk.lose_host(self.rng)
        self._next_process()


def _state(fenced: bool, limbo: bool) -> Operation:
    return lambda bench: bench.put(ledger_record(1, LedgerRecord(KEY, fenced, limbo)))


def _add(bench: Bench) -> None:
    bench.put(*bench.new_entries(2))


def _defer(bench: Bench) -> None:
    bench.defer(*bench.new_entries(2))


def _write_again(bench: Bench) -> None:
    bench.put(entry(1, 0, b"again" * 100))


def _write_lac(bench: Bench) -> None:
    bench.put(lac_record(packet_of(1, bench.rng.randrange(50))))


def _sync(bench: Bench) -> None:
    bench.store.sync()
    bench.synced()


def _checkpoint(bench: Bench) -> None:
    bench.store.checkpoint()
    bench.synced()


def _rest(bench: Bench) -> None:
    """As a worker does that has nothing to do: the disk proves its own end."""
    _sync(bench)
    store = bench.store
    if not store.is_proven:
        store.prove()
        store.sync()
    if (mark := store.tail_marks.due) is not None:
        store.tail_marks.end(store.tail_marks.write(mark))


def _roll(bench: Bench) -> None:
    bench.store.log.seal()


def _forget(bench: Bench) -> None:
    bench.put(forget_record(1))


def _stop_and_start(bench: Bench) -> None:
    bench.stop()
    bench.start()


def _kill_and_start(bench: Bench) -> None:
    bench.kill()
    bench.start()


def _lose_and_start(bench: Bench) -> None:
    bench.lose_host()
    bench.start()


OPERATIONS: dict[str, Operation] = {
    "add": _add,
    "defer": _defer,
    "write again": _write_again,
    "write a LAC": _write_lac,
    "fence": _state(True, False),
    "limbo": _state(True, True),
    "forget": _forget,
    "sync": _sync,
    "checkpoint": _checkpoint,
    "rest": _rest,
    "roll": _roll,
    "stop, start": _stop_and_start,
    "kill, start": _kill_and_start,
    "lose the host, start": _lose_and_start,
}


def _fail(bench: Bench) -> bool:
    bench.was_failing = True
    raise DiskFailedError("an error of the disk, as ordered")


def _fill_up(bench: Bench) -> bool:
    bench.was_failing = True
    raise DiskFullError("no room, as ordered")


def _fail_sync(bench: Bench) -> bool:
    """This call, or the next one that is a sync, fails, and nobody can tell later what it left behind."""
    bench.was_failing = True
    for disk in bench.disks:
        disk.fail_syncs = 1
    return False


BLOWS: dict[str, Blow] = {
    "crash": Bench.die,
    "error": _fail,
    "errors from now on": Bench.fail_from_now_on,
    "no room": _fill_up,
    "failed sync": _fail_sync,
}


@dataclass(slots=True)
class Tally:
    """``failures``: how to see it again, and what it said."""

    sequences: int = 0
    points: int = 0
    states: int = 0
    failures: list[str] = field(default_factory=list)


def sequences(length: int) -> Iterator[tuple[str, ...]]:
    """All of one to so many operations."""
    for size in range(1, length + 1):
        yield from itertools.product(OPERATIONS, repeat=size)


def strike(names: tuple[str, ...], mode: AckAfter, losses: int, seed: str, tally: Tally) -> None:
    """Strike the last operation at every change: each blow with a kill, and so many ways to lose the host."""
    tally.sequences += 1
    what = f"{' / '.join(names)}, {mode.value}"
    for blow in BLOWS:
        for point in itertools.count(1):
            tally.points += 1
            fell = False
            for way in range(1 + (losses if blow == "crash" else 1)):
                told = f"{what}, {blow} at {point}, way {way}, seed {seed}"
                once = partial(_strike_once, names, mode, blow, point, way)
                fell = _tried(once, told, tally)
            if not fell:
                break


def fail_reads(names: tuple[str, ...], mode: AckAfter, seed: str, tally: Tally) -> None:
    """Let every read of the start that follows fail in turn, after a kill and after the host was lost."""
    disks = range(2 if mode is AckAfter.JOURNAL else 1)
    for way, disk in itertools.product(range(2), disks):
        for read in itertools.count(1):
            tally.points += 1
            told = f"{' / '.join(names)}, {mode.value}, read {read} of disk {disk}, way {way}, seed {seed}"
            if not _tried(partial(_fail_read_once, names, mode, disk, read, way), told, tally):
                break


def _tried(once: Callable[[str], bool], told: str, tally: Tally) -> bool:
    """Whether what was to happen did."""
    tally.states += 1
    try:
        return once(told)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding, and there is more
        tally.failures.append(f"{told}: {type(error).__name__}: {error}")
        return len(tally.failures) <= _FAILURES_MAX


def _fail_read_once(
    names: tuple[str, ...], mode: AckAfter, disk: int, read: int, way: int, seed: str
) -> bool:
    """Whether the start came to this read."""
    bench = Bench(mode, seed)
    for name in names:
        OPERATIONS[name](bench)
    bench.kill() if way == 0 else bench.lose_host()
    came_to_it = bench.start_with_bad_read(disk, read)
    bench.start()
    return came_to_it


def _strike_once(
    names: tuple[str, ...], mode: AckAfter, blow: str, point: int, way: int, seed: str
) -> bool:
    """``way`` 0: a kill. Whether the blow fell before the end."""
    bench = Bench(mode, seed)
    for name in names[:-1]:
        OPERATIONS[name](bench)
    fell = bench.struck(OPERATIONS[names[-1]], point, BLOWS[blow])
    bench.kill() if way == 0 else bench.lose_host()
    bench.start()
    bench.kill() if bench.rng.random() < 0.5 else bench.lose_host()
    bench.start()
    return fell


def strike_all(
    chosen: Iterable[tuple[str, ...]], modes: Sequence[AckAfter], losses: int, seed: str
) -> Tally:
    """All of these."""
    tally = Tally()
    with replaced(
        (segmented_log, "_FILL_BYTES", 2 << 10), (segmented_log, "_SMALL_SYNC_BYTES", 2 << 10)
    ):
        for names in chosen:
            for mode in modes:
                strike(names, mode, losses, seed, tally)
                fail_reads(names, mode, seed, tally)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.sequences")
    parser.add_argument("--length", type=int, default=3)
    parser.add_argument("--mode", nargs="*", choices=[mode.value for mode in AckAfter])
    parser.add_argument("--losses", type=int, default=4)
    parser.add_argument("--seed", default="1")
    chosen = parser.parse_args()
    failures = 0
    print("| ack_after | sequences | points | states | failures | states/s |")
    print("| --- | --- | --- | --- | --- | --- |")
    for mode in [AckAfter(name) for name in chosen.mode or ()] or AckAfter:
        began = time.process_time()
        tally = strike_all(sequences(chosen.length), [mode], chosen.losses, chosen.seed)
        rate = tally.states / (time.process_time() - began)
        cells = (
            mode.value,
            tally.sequences,
            tally.points,
            tally.states,
            len(tally.failures),
            f"{rate:.0f}",
        )
        print("|", " | ".join(map(str, cells)), "|", flush=True)
        for failure in tally.failures[:20]:
            print(f"    {failure}", flush=True)
        failures += len(tally.failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
