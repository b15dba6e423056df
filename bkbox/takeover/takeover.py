"""`bkbox takeover`: the disks of a stopped Java bookie become bkbox's, one entry log file after the other.

The order of the steps is the promise. A kill between any two of them loses nothing: run again, the command goes on.

1. ``CONVERSION`` is written to each disk: from here on no bookie of bkbox's starts there.
2. Java's trees are set aside: from here on no bookie of Java's starts there.
3. The disks are prepared for bkbox, and the states of all ledgers are written to them, synced.
4. Each of Java's entry log files is read in the order in which they were written. Its entries are appended to bkbox's
   log and synced; only then the file is removed. The first file of a run may have been converted in part before: its
   entries that are on the disk already, byte for byte, are left out.
5. Entries of the journal that the disks do not have are appended and synced.
6. The record says FINISHING: Java's files are not read any more. Dirty markers (where something may be missing),
   cookies on the disks, and the cookie in the metadata store are written.
7. What is left of Java's trees is removed, and ``CONVERSION`` last of all.

A ledger lies on one disk of bkbox's. With interleaved storage on several disks its entries may be on all of them: it
goes to the one with the most of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from uuid import UUID

from bkbox.base.ids import BookieId
from bkbox.base.values import replaced
from bkbox.config.schema import Config
from bkbox.errors import DiskFullError, OperatorError
from bkbox.metadata.base import MetadataStore
from bkbox.storage.disk import dirty_marker as markers
from bkbox.storage.disk.conversion import (
    CONVERSION_NAME,
    Conversion,
    Direction,
    Phase,
    read_conversion,
    write_conversion,
)
from bkbox.storage.disk.format_disk import format_disk
from bkbox.storage.disk.identity import DiskIdentity, read_identity, write_identity
from bkbox.storage.files import Files, unlink_durably
from bkbox.storage.log.records import LedgerRecord
from bkbox.supervisor.boot.cookies import expected_cookie
from bkbox.supervisor.disks.disk_inspection import (
    locked,
    make_directory,
    stamp,
    write_epoch,
)
from bkbox.takeover import java_bookie
from bkbox.takeover.disk_store import DiskWriter, open_disk
from bkbox.takeover.java_bookie import JavaBookie
from bkbox.takeover.java_entry_log import EntryLogScan
from bkbox.takeover.java_ledger import JavaLedger
from bkbox.takeover.java_states import replay, sound_lac
from bkbox.takeover.observer import Observer
from bkbox.takeover.plan import Cluster, LogFile, TakeoverPlan, make_plan
from bkbox.wire.metadata import cookie as cookies


class Takeover:
    """One run of the command. ``convert`` does steps 1 to 5 and reads no metadata; ``finish`` does the rest."""

    def __init__(
        self,
        java: JavaBookie,
        config: Config,
        files: Files,
        cluster: Cluster,
        observer: Observer,
        *,
        now_ms: Callable[[], int],
        new_uuid: Callable[[], UUID],
        fence_all: bool = False,
    ) -> None:
        self._java = java
        self._config = config
        self._files = files
        self._cluster = cluster
        self._observer = observer
        self._now_ms = now_ms
        self._new_uuid = new_uuid
        self._fence_all = fence_all
        self._disks = [Path(each) for each in java.ledger_dirs]
        self._writers: list[DiskWriter] = []
        self._home: dict[int, int] = {}
        self._losses: list[str] = []

    def locked(self) -> AbstractContextManager[None]:
        """Holds the disks. BookieRunningError, DiskError."""
        return locked(self._config, self._files, create=True)

    # ---- steps 1 to 5 -----------------------------------------------------------------------

    def convert(self) -> TakeoverPlan:
        """Convert all that is not converted yet. Raises OperatorError, DiskError; it can be called again then."""
        plan = make_plan(
            self._java, self._config, self._files, self._cluster, fence_all=self._fence_all
        )
        begun = plan.begun
        if begun is not None and begun.phase is Phase.FINISHING:
            return plan
        self._fence_all = self._fence_all or (begun is not None and begun.fence_all)
        self._losses = list(dict.fromkeys((*(begun.losses if begun else ()), *plan.states.losses)))
        self._observer.stage("converting", plan.total_bytes)
        self._set_aside()
        self._prepare()
        plan = make_plan(  # the same files, at their new place
            self._java, self._config, self._files, self._cluster, fence_all=self._fence_all
        )
        with ExitStack() as stack:
            for disk in self._disks:
                store, lost = open_disk(self._files, disk, self._config, self._now_ms)
                stack.callback(store.abandon)
                self._add_losses(lost)
                store.resolve_losses()
                self._writers.append(DiskWriter(store))
            self._place(plan)
            self._write_states(plan.states.ledgers)
            for number, log in enumerate(plan.logs):
                self._convert_log(log, plan, skip_known=number == 0)
            self._convert_journal(plan)
            self._observer.step("close the disks")
            for writer in self._writers:
                writer.store.close()
        self._observer.step("record that all is converted")
        for disk in self._disks:
            self._record(disk, phase=Phase.FINISHING)
        return plan

    def _set_aside(self) -> None:
        for disk in self._disks:
            self._observer.step("write CONVERSION")
            self._record(disk)
        for directory in self._java.directories:
            self._observer.step("set Java's files aside")
            java_bookie.set_aside(self._files, directory, Direction.TAKEOVER)

    def _record(self, disk: Path, phase: Phase = Phase.COPYING) -> None:
        before = read_conversion(self._files, disk) or Conversion(Direction.TAKEOVER)
        now = replaced(before, phase=phase, losses=tuple(self._losses), fence_all=self._fence_all)
        write_conversion(self._files, disk, now)

    def _add_losses(self, found: Iterable[str]) -> None:
        new = [each for each in found if each not in self._losses]
        if new:
            self._losses += new
            for disk in self._disks:
                self._record(disk)

    def _prepare(self) -> None:
        for disk in self._disks:
            self._observer.step("prepare a disk")
            if read_identity(self._files, disk) is None:
                format_disk(self._files, disk, self._identity())

    def _identity(self) -> DiskIdentity:
        return DiskIdentity(self._new_uuid(), self._config.bookie_id, self._cluster.instance_id)

    # ---- where a ledger goes ----------------------------------------------------------------

    def _place(self, plan: TakeoverPlan) -> None:
        """Choose a disk for each ledger; one that a disk knows already stays there."""
        count = len(self._disks)
        self._home = {ledger: ledger % count for ledger in plan.states.ledgers}
        if not plan.states.home and count > 1:
            self._home |= self._largest_parts(plan)
        self._home |= plan.states.home
        for number, writer in enumerate(self._writers):
            self._home |= {ledger: number for ledger, _ in writer.store.ledgers()}

    def _largest_parts(self, plan: TakeoverPlan) -> dict[int, int]:
        sizes: dict[int, Counter[int]] = {}
        for log in plan.logs:
            with closing(self._files.open_read(log.path)) as file:
                for entry in EntryLogScan(file, log.path):
                    sizes.setdefault(entry.ledger, Counter())[log.disk] += len(entry.body)
        return {ledger: parts.most_common(1)[0][0] for ledger, parts in sizes.items()}

    def _write_states(self, ledgers: dict[int, JavaLedger]) -> None:
        for number, writer in enumerate(self._writers):
            self._observer.step("write the states of ledgers")
            writer.set_states(
                (
                    ledger,
                    _record_of(state, fence=self._fence_all),
                    sound_lac(ledger, state.explicit_lac),
                )
                for ledger, state in ledgers.items()
                if self._home[ledger] == number
            )

    # ---- entries ----------------------------------------------------------------------------

    def _convert_log(self, log: LogFile, plan: TakeoverPlan, *, skip_known: bool) -> None:
        self._observer.step("convert an entry log file")
        ledgers = plan.states.ledgers
        done = 0
        with closing(self._files.open_read(log.path)) as file, self._space_of(log.path):
            scan = EntryLogScan(file, log.path)
            for item in scan:
                if item.position - done >= _TOLD_BYTES:
                    self._observer.advance(item.position - done)
                    done = item.position
                if item.ledger not in ledgers and not self._take_unknown(item.ledger, log, ledgers):
                    continue
                writer = self._writers[self._home[item.ledger]]
                if skip_known and writer.store.read_entry(item.ledger, item.entry) == item.body:
                    continue
                writer.add(item.body)
            for writer in self._writers:
                writer.sync()
            if scan.damage:
                self._add_losses([f"{log.path}: {scan.damage}"])
        self._observer.step("remove an entry log file")
        unlink_durably(self._files, log.path)
        self._observer.advance(max(log.size - done, 0))

    def _take_unknown(self, ledger: int, log: LogFile, ledgers: dict[int, JavaLedger]) -> bool:
        """True if a ledger that neither index nor journal know is taken over: without the index, every one that
        exists, fenced.
        """
        if not self._fence_all or ledger not in self._cluster.ledgers:
            return False
        ledgers[ledger] = JavaLedger(fenced=True)
        number = self._home.setdefault(ledger, log.disk)
        self._writers[number].set_states([(ledger, LedgerRecord(fenced=True), None)])
        return True

    def _convert_journal(self, plan: TakeoverPlan) -> None:
        self._observer.step("convert the journal")
        with self._space_of(self._disks[0]):
            for record in replay(self._files, list(plan.journal)):
                if record.entry < 0 or record.ledger not in plan.states.ledgers:
                    continue
                writer = self._writers[self._home[record.ledger]]
                if not writer.store.has_entry(record.ledger, record.entry):
                    writer.add(record.body)
            for writer in self._writers:
                writer.sync()
        self._observer.advance(plan.journal_bytes)

    @contextmanager
    def _space_of(self, path: Path) -> Iterator[None]:
        try:
            yield
        except DiskFullError as error:
            raise OperatorError(
                f"{error} while {path} was converted. Nothing is lost: make room and run the command again"
            ) from error

    # ---- steps 6 and 7 ----------------------------------------------------------------------

    async def finish(self, store: MetadataStore) -> None:
        """Write cookies and remove what is left of Java's files. Raises MetadataError, DiskError; it can be called
        again then.
        """
        losses = dict.fromkeys(
            loss
            for disk in self._disks
            if (record := read_conversion(self._files, disk)) is not None
            for loss in record.losses
        )
        for disk in self._disks:
            self._observer.step("note what may be missing")
            marker = markers.read_marker(self._files, disk)
            noted = () if marker is None else marker.failures
            for loss in losses:
                if loss not in noted:
                    markers.record_failure(self._files, disk, loss)
        await self._write_cookies(store)
        for directory in self._java.directories:
            self._observer.step("remove Java's files")
            java_bookie.remove_java(self._files, directory)
        for disk in self._disks:
            self._observer.step("remove CONVERSION")
            unlink_durably(self._files, disk / CONVERSION_NAME)

    async def _write_cookies(self, store: MetadataStore) -> None:
        expected = expected_cookie(self._config, self._cluster.instance_id)
        data = cookies.encode(expected)
        bookie = BookieId(self._config.bookie_id)
        stored = await store.read_cookie(bookie)
        is_new = stored is None or stored.value != data
        epoch = 0 if stored is None else stored.version + is_new
        directories = [*self._config.disks]
        if self._config.journal is not None:
            make_directory(self._files, self._config.journal)
            if read_identity(self._files, self._config.journal) is None:
                write_identity(self._files, self._config.journal, self._identity())
            directories.append(self._config.journal)
        for directory in directories:
            self._observer.step("write a cookie")
            write_epoch(self._files, directory, epoch)
            stamp(self._files, directory, expected)
        self._observer.step("write the cookie in the metadata store")
        if is_new:
            await store.write_cookie(bookie, data, None if stored is None else stored.version)


_TOLD_BYTES = 8 << 20
"""Bytes of a file between two reports of progress."""


def _record_of(state: JavaLedger, *, fence: bool) -> LedgerRecord:
    return LedgerRecord(state.known_key, state.fenced or state.limbo or fence, state.limbo)
