"""Whether a bookie that was started again after a crash keeps its promises.

Checked, in this order: what a missing dirty marker says; the start; that losses are suspected exactly where there may
be some (never after a process crash, under ``sync`` and ``journal`` not after a lost host either); every entry, fence,
limbo, key and explicit LAC; that it takes adds; that it starts once more, after a stop in order or a kill, and still
has all of that.

While it suspects a loss, an acknowledged entry may be unknown, never denied.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from bkbox.errors import BkboxError
from bkbox.storage.disk.dirty_marker import read_marker
from bkbox.storage.files import RealFiles
from bkbox.storage.log.records import AckAfter, LedgerRecord, lac_of
from tests.crash.points.miniature import KEY, Miniature
from tests.crash.points.promises import Promises, payload
from tests.crash.points.scenarios import LATER_LEDGER
from tests.harness import raw

NEW_LEDGER = LATER_LEDGER + 1
ANOTHER_BOOT = "the boot after the host was lost"
NEVER_SENT = 99


class BrokenPromiseError(AssertionError):
    """What is not as it was promised."""


@dataclass(frozen=True, slots=True)
class Crash:
    """``host``: the machine went down, not the process alone.

    Because of what happened before the scenario, ``may_suspect``: a loss may be suspected where the crash caused none;
    ``may_have_lost``: and entries may be unknown. ``rebuilds``: the index may be damaged, and made anew by the start.
    """

    host: bool
    may_suspect: bool = False
    may_have_lost: bool = False
    rebuilds: bool = False


def examine(bookie: Miniature, promises: Promises, crash: Crash, rng: random.Random) -> bool:
    """Start the bookie on what a crash left, and check all promises; whether its index had to be made anew.
    BrokenPromiseError.
    """
    if crash.host:
        promises.deferred = set()  # they were promised to a killed process only
    try:
        dirty = _markers(bookie, promises)
        if crash.host:
            bookie.boot_id = ANOTHER_BOOT
        unsure = promises.active | promises.limbo | promises.may_be_limbo
        rebuilt = _start(bookie, crash, "after the crash")
        _suspicion(bookie, crash, dirty)
        if not crash.may_suspect:
            _limbo(bookie, unsure)
        losable = crash.host and bookie.mode is AckAfter.WRITE and bookie.may_have_lost
        strict = not (losable or crash.may_have_lost)
        as_before = not (bookie.may_have_lost or crash.may_suspect)
        _everything(bookie, promises, strict=strict, as_before=as_before)
        _takes_adds(bookie, promises)
        if rng.random() < 0.5:
            bookie.abandon()
        else:
            bookie.stop()
        _start(bookie, Crash(False), "once more")
        if bookie.may_have_lost:
            raise BrokenPromiseError(f"the second start suspects a loss: {bookie.classes}")
        _everything(bookie, promises, strict=strict, as_before=as_before)
    finally:
        bookie.abandon()
    return rebuilt


def _markers(bookie: Miniature, promises: Promises) -> set[Path]:
    """The disks that say that they were in use."""
    dirty = {disk for disk in bookie.disks if read_marker(RealFiles(), disk) is not None}
    if promises.in_use and not promises.stopping and dirty != set(bookie.disks):
        raise BrokenPromiseError(f"only {dirty} are marked as in use, and all are")
    return dirty


def _start(bookie: Miniature, crash: Crash, run_id: str) -> bool:
    """Whether the index had to be made anew."""
    try:
        bookie.start(run_id)
    except BkboxError as error:
        raise BrokenPromiseError(f"it does not start: {type(error).__name__}: {error}") from error
    rebuilt = "; ".join(disk.rebuilt for disk in bookie.opened if disk.rebuilt)
    if rebuilt and not crash.rebuilds:
        raise BrokenPromiseError(f"an index was made anew: {rebuilt}")
    return bool(rebuilt)


def _suspicion(bookie: Miniature, crash: Crash, dirty: set[Path]) -> None:
    if crash.may_suspect:
        return
    losable = crash.host and bookie.mode is AckAfter.WRITE
    for disk, verdict in zip(bookie.opened, bookie.classes, strict=True):
        if verdict.may_have_lost and not losable:
            raise BrokenPromiseError(f"it suspects a loss where there can be none: {verdict}")
        if losable and disk.path in dirty and not verdict.may_have_lost:
            raise BrokenPromiseError(f"{disk.path} lost its host, and suspects nothing: {verdict}")


def _limbo(bookie: Miniature, unsure: set[int]) -> None:
    """A ledger that all was synced of is not doubted, whatever the loss."""
    for disk, verdict in zip(bookie.opened, bookie.classes, strict=True):
        if verdict.may_have_lost and not verdict.only_active:
            raise BrokenPromiseError(f"it suspects any ledger: {verdict}")
        assert disk.store is not None
        doubted = {ledger for ledger, record in disk.store.ledgers() if record.limbo}
        if doubted - unsure:
            raise BrokenPromiseError(f"ledgers {doubted - unsure} are in limbo for no reason")


def _everything(bookie: Miniature, promises: Promises, *, strict: bool, as_before: bool) -> None:
    """``strict``: what was acknowledged must be there; ``as_before``: nobody else fenced anything."""
    due = promises.acked | promises.deferred
    for ledger in sorted({*bookie.ledgers} | {ledger for ledger, _entry in promises.tried}):
        record = bookie.record(ledger)
        entries = sorted(entry for at, entry in promises.tried if at == ledger)
        frames = [raw.read_frame(ledger, entry) for entry in entries]
        answers = bookie.ask(ledger, *frames) if frames else []
        for entry, (code, body) in zip(entries, answers, strict=True):
            what = f"ledger {ledger} entry {entry}"
            if code == raw.EOK:
                if raw.payload_of(body) != payload(ledger, entry):
                    raise BrokenPromiseError(f"{what} has other bytes")
            elif code in (raw.ENOENTRY, raw.ENOLEDGER):
                if (ledger, entry) in due:
                    raise BrokenPromiseError(f"{what} was acknowledged and is denied")
            elif code != raw.EIO or not record.limbo:
                raise BrokenPromiseError(f"{what} is answered {code}")
            elif (ledger, entry) in due and strict:
                raise BrokenPromiseError(f"{what} was acknowledged and is unknown")
        _ledger(bookie, promises, ledger, record, as_before=as_before)


def _ledger(
    bookie: Miniature, promises: Promises, ledger: int, record: LedgerRecord, *, as_before: bool
) -> None:
    disk = bookie.disk_of(ledger)
    assert disk.store is not None
    for first, last in disk.store.entries(ledger):
        strange = {(ledger, n) for n in range(first, last + 1)} - promises.tried
        if strange:
            raise BrokenPromiseError(f"there are entries that nobody sent: {strange}")
    if ledger in promises.fenced and not record.fenced:
        raise BrokenPromiseError(f"the fence of ledger {ledger} is lost")
    if ledger in promises.limbo and not record.limbo:
        raise BrokenPromiseError(f"the limbo of ledger {ledger} is lost")
    if as_before:
        if record.fenced and ledger not in promises.fenced | promises.may_be_fenced:
            raise BrokenPromiseError(f"nobody fenced ledger {ledger}")
        if record.limbo and ledger not in promises.limbo | promises.may_be_limbo:
            raise BrokenPromiseError(f"nobody put ledger {ledger} into limbo")
    packet = disk.store.explicit_lac(ledger)
    lac = -1 if packet is None else lac_of(packet)
    if not promises.lacs.get(ledger, -1) <= lac <= promises.tried_lacs.get(ledger, -1):
        raise BrokenPromiseError(f"the explicit LAC of ledger {ledger} is {lac}")
    if ledger in promises.known() and record.master_key != KEY:
        raise BrokenPromiseError(f"the key of ledger {ledger} is {record.master_key!r}")
    if record != LedgerRecord():
        _refusals(bookie, ledger, record)


def _refusals(bookie: Miniature, ledger: int, record: LedgerRecord) -> None:
    """What a ledger of this state must refuse; nothing of it changes anything."""
    late = raw.add_frame(ledger, NEVER_SENT, b"late", key=KEY if record.fenced else b"w" * 20)
    answers = bookie.ask(ledger, raw.read_frame(ledger, NEVER_SENT), late)
    (read, _body), (add, _body) = answers
    if read != (raw.EIO if record.limbo else raw.ENOENTRY):
        raise BrokenPromiseError(f"a read of what was never sent is answered {read}: {record}")
    if add != (raw.EFENCED if record.fenced else raw.EUA):
        raise BrokenPromiseError(f"an add that has to be refused is answered {add}: {record}")


def _takes_adds(bookie: Miniature, promises: Promises) -> None:
    """To a new ledger, and to all that are open; what is taken is promised, too."""
    ledgers = [ledger for ledger in bookie.ledgers if not bookie.record(ledger).fenced]
    for ledger in [*ledgers, NEW_LEDGER]:
        entry = 1 + max((e for at, e in promises.tried if at == ledger), default=-1)
        frame = raw.add_frame(ledger, entry, payload(ledger, entry))
        promises.note("try", "add", ledger, entry)
        [(code, _body)] = bookie.ask(ledger, frame)
        if code != raw.EOK:
            raise BrokenPromiseError(f"an add to ledger {ledger} is answered {code}")
        promises.note("ack", "add", ledger, entry)
