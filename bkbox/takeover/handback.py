"""`bkbox handback`: the disks of a stopped bookie become Java's, one segment after the other.

The order of the steps is the promise. A kill between any two of them loses nothing: run again, the command goes on.

1. ``CONVERSION`` is written to each disk, and a file where Java's trees will be: no bookie of either kind starts there.
2. Each segment of bkbox's log is read in order. Its live entries are written to an entry log file of Java's, synced;
   only then the segment is removed. A file that a kill left incomplete is written again from its beginning. The newest
   segment of a disk stays until step 5.
3. The index of Java's storage is written anew from the files and from the states of ledgers.
4. The record says FINISHING: bkbox's log and index are not read any more.
5. They are removed, Java's cookies are written to its directories, and the cookie in the metadata store.
6. Java's trees are put in their place, and ``CONVERSION`` is removed last of all.

Java's DbLedgerStorage finds a ledger's directory by its id: with several disks, entries may have to go to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

from bkbox.base.commandline import bookie_command
from bkbox.base.ids import BookieId
from bkbox.base.text import counted
from bkbox.base.values import frozen_struct, replaced
from bkbox.config.schema import Config
from bkbox.errors import BootError, CookieMismatchError, DamagedError, DiskFullError, OperatorError
from bkbox.metadata.base import MetadataStore
from bkbox.storage.checksummed_document import FORMATS
from bkbox.storage.disk import dirty_marker as markers
from bkbox.storage.disk.conversion import (
    CONVERSION_NAME,
    Conversion,
    Direction,
    Phase,
    read_conversion,
    write_conversion,
)
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.identity import read_identity
from bkbox.storage.disk.lock import LOCK_NAME
from bkbox.storage.disk.reserve import RESERVE_NAME
from bkbox.storage.files import Files, unlink_durably, write_atomic
from bkbox.storage.index.ordered_store import INDEX_DIR
from bkbox.storage.log.records import ENTRY_IDS, Kind, LedgerRecord, Location
from bkbox.storage.log.segment import (
    ENTRY_LOG_DIR,
    SEGMENT_HEADER_BYTES,
    ScannedRecord,
    Unwritten,
)
from bkbox.storage.log.tail import TAIL_NAME
from bkbox.supervisor.boot.cookies import compare, gather
from bkbox.supervisor.disks.disk_inspection import VERSION_NAME, locked, make_directory
from bkbox.takeover import java_bookie, java_rocksdb
from bkbox.takeover.disk_store import open_disk
from bkbox.takeover.java_bookie import ASIDE, CURRENT, JavaBookie, Storage
from bkbox.takeover.java_entry_log import LOG_ID_MAX, EntryLogWriter, log_file_name
from bkbox.takeover.java_index_writer import write_index
from bkbox.takeover.java_ledger import JavaLedger
from bkbox.takeover.observer import Observer
from bkbox.takeover.plan import Cluster, begun_conversion, refuse_other_disks
from bkbox.wire.metadata import cookie as cookies

_OURS = (
    *(name for name in FORMATS if name != CONVERSION_NAME),
    *(VERSION_NAME, TAIL_NAME, RESERVE_NAME, LOCK_NAME, "PROBE", "admin.sock", "JOBS.aside"),
)
"""Files that bkbox keeps on a disk or in a journal directory."""

_STEP_BYTES = 8 << 20


@frozen_struct
class HandbackPlan:
    """``ledgers``: states of those that exist; ``home``: the number of the disk that each goes to. ``segments``: number
    of segments that are left, of ``total_bytes``.
    """

    ledgers: dict[int, JavaLedger]
    home: dict[int, int]
    segments: int
    total_bytes: int

    def lines(self) -> list[str]:
        """The plan as text."""
        fenced = sum(each.fenced for each in self.ledgers.values())
        return [
            f"{counted(self.segments, 'segment')} to convert",
            f"{counted(len(self.ledgers), 'ledger')}, {fenced} of them fenced",
        ]


class Handback:
    """One run of the command. ``convert`` does steps 1 to 4 and reads no metadata; ``finish`` does the rest."""

    def __init__(
        self,
        java: JavaBookie,
        config: Config,
        files: Files,
        cluster: Cluster,
        observer: Observer,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._java = java
        self._config = config
        self._files = files
        self._cluster = cluster
        self._observer = observer
        self._now_ms = now_ms
        self._disks = [Path(each) for each in java.ledger_dirs]
        self._stores: list[DiskStore] = []

    def locked(self) -> AbstractContextManager[None]:
        """Holds the disks. BookieRunningError, DiskError."""
        return locked(self._config, self._files, create=False)

    # ---- what may be in the way ---------------------------------------------------------------

    async def check(self, store: MetadataStore) -> Conversion | None:
        """The conversion that was interrupted, if any. Raises OperatorError for all that forbids the conversion."""
        refuse_other_disks(self._java, self._config)
        if self._java.storage is Storage.DB and not java_rocksdb.is_installed():
            raise OperatorError(
                "the index of Java's DbLedgerStorage is a RocksDB database, and the package that writes it is not "
                f"installed: {java_rocksdb.INSTALL}"
            )
        begun = begun_conversion(self._files, self._disks, Direction.HANDBACK)
        if begun is not None:
            return begun
        found = compare(await gather(self._config, store, self._files))
        if not found.ok:
            differences = "; ".join(map(str, found.differences))
            raise CookieMismatchError(f"cookie mismatch: {differences}. {found.advice}")
        for disk in self._disks:
            if markers.read_marker(self._files, disk) is not None:
                raise OperatorError(
                    f"{disk} was not stopped cleanly: start the bookie and stop it, so that it deals with what it may "
                    f"have lost: {bookie_command('run')}"
                )
            if self._files.exists(disk / "MOVES"):
                raise OperatorError(
                    f"ledgers are about to leave {disk} or to arrive there: start the bookie and let "
                    "the drain finish, or cancel it"
                )
        for directory in self._java.directories:
            if (directory / CURRENT).exists() or (directory / ASIDE).exists():
                raise OperatorError(
                    f"{directory} has files of a Java bookie already ({CURRENT} or {ASIDE}): move them away"
                )
        return None

    @contextmanager
    def _opened(self) -> Iterator[None]:
        with ExitStack() as stack:
            self._stores = []
            for disk in self._disks:
                store, lost = open_disk(
                    self._files,
                    disk,
                    self._config,
                    self._now_ms,
                    journal=self._config.journal,
                    is_clean=True,
                )
                stack.callback(store.abandon)
                if lost:
                    raise DamagedError(
                        f"{disk} has lost data: {'; '.join(lost)}. Start the bookie, which repairs it from its peers"
                    )
                self._stores.append(store)
            yield

    def _plan(self) -> HandbackPlan:
        ledgers: dict[int, JavaLedger] = {}
        home: dict[int, int] = {}
        count = len(self._disks)
        for number, store in enumerate(self._stores):
            for ledger, state in store.ledgers():
                if ledger not in self._cluster.ledgers or state.deleted_ms:
                    continue
                if state.limbo:
                    raise OperatorError(
                        f"ledger {ledger} is in limbo: entries of it may be missing here. Start the bookie and wait "
                        f"for its repair: {bookie_command('status')}"
                    )
                ledgers[ledger] = _java_state(state, store.explicit_lac(ledger))
                home[ledger] = ledger % count if self._java.storage is Storage.DB else number
        segments = [(store, each) for store in self._stores for each in store.log.segments()]
        total = sum(store.log.size_of(each) for store, each in segments)
        return HandbackPlan(ledgers, home, len(segments), total)

    def look(self) -> HandbackPlan:
        """The plan; nothing is changed. The disks have to be locked. OperatorError, DiskError."""
        with self._opened():
            return self._plan()

    # ---- steps 1 to 4 -----------------------------------------------------------------------

    def convert(self, begun: Conversion | None) -> None:
        """Convert all that is not converted yet. Raises OperatorError, DiskError; it can be called again then."""
        if begun is not None and begun.phase is Phase.FINISHING:
            return
        with self._opened():
            plan = self._plan()
            self._observer.stage("converting", plan.total_bytes)
            self._bar()
            for number, store in enumerate(self._stores):
                newest = store.position.segment
                for segment in store.log.segments():
                    self._convert(number, segment, plan, is_last=segment == newest)
            self._observer.step("write the index")
            with self._space():
                write_index(self._java, self._files, plan.ledgers, plan.home)
        self._observer.step("record that all is converted")
        for disk in self._disks:
            self._record(disk, Phase.FINISHING)

    def _bar(self) -> None:
        for disk in self._disks:
            self._observer.step("write CONVERSION")
            self._record(disk, Phase.COPYING)
        for directory in self._java.directories:
            self._observer.step("bar Java's bookie")
            make_directory(self._files, directory)
            java_bookie.bar(self._files, directory, Direction.HANDBACK)
            make_directory(self._files, directory / ASIDE)

    def _record(self, disk: Path, phase: Phase) -> None:
        before = read_conversion(self._files, disk) or Conversion(Direction.HANDBACK)
        write_conversion(self._files, disk, replaced(before, phase=phase))

    def _convert(self, number: int, segment: int, plan: HandbackPlan, *, is_last: bool) -> None:
        self._observer.step("convert a segment")
        store = self._stores[number]
        log_id = segment * len(self._disks) + number
        if log_id > LOG_ID_MAX:
            raise BootError(f"Java has no entry log with the id {log_id}")
        writers = _LogWriters(self._files, self._java, log_id)
        done = SEGMENT_HEADER_BYTES
        try:
            with self._space(), closing(store.log.scan(segment, SEGMENT_HEADER_BYTES)) as items:
                for item in items:
                    if isinstance(item, ScannedRecord):
                        if item.kind is Kind.ENTRY:
                            self._copy(store, segment, item, plan, writers)
                        if item.end - done >= _STEP_BYTES:
                            self._observer.advance(item.end - done)
                            done = item.end
                    elif not isinstance(item, Unwritten):
                        self._refuse_damage(store, segment, item.start, item.end)
                writers.end()
        finally:
            writers.close()
        if not is_last:
            self._observer.step("remove a segment")
            store.retire(segment)
            store.remove_unneeded()

    def _copy(
        self,
        store: DiskStore,
        segment: int,
        record: ScannedRecord,
        plan: HandbackPlan,
        writers: _LogWriters,
    ) -> None:
        ledger, entry = ENTRY_IDS.unpack_from(record.body)
        home = plan.home.get(ledger)
        if home is None:
            return
        if store.index.find(ledger, entry) == Location(segment, record.offset, len(record.body)):
            writers.append(home, ledger, record.body)

    def _refuse_damage(self, store: DiskStore, segment: int, start: int, end: int) -> None:
        """Raises DamagedError: entries may be in a part that cannot be read, and Java could not be told."""
        raise DamagedError(
            f"{store.log.path_of(segment)}: bytes {start} to {end} cannot be read. Start the bookie and let "
            f"`{bookie_command('scrub', 'run')}` refill what is bad"
        )

    @contextmanager
    def _space(self) -> Iterator[None]:
        try:
            yield
        except DiskFullError as error:
            raise OperatorError(
                f"{error}. Nothing is lost: make room and run the command again"
            ) from error

    # ---- steps 5 and 6 ----------------------------------------------------------------------

    async def finish(self, store: MetadataStore) -> None:
        """Write cookies, remove bkbox's files, and put Java's in their place. Raises MetadataError, DiskError; it can
        be called again then.
        """
        journal = [] if self._config.journal is None else [self._config.journal]
        for directory in (*self._disks, *journal):
            self._observer.step("remove bkbox's files")
            self._remove_ours(directory)
        expected = self._java.cookie(self._config.bookie_id, self._cluster.instance_id)
        data = cookies.encode(expected)
        for directory in self._java.directories:
            self._observer.step("write a cookie")
            target = java_bookie.tree(directory)
            if target.is_dir():
                write_atomic(self._files, target / java_bookie.COOKIE_NAME, data)
        self._observer.step("write the cookie in the metadata store")
        bookie = BookieId(self._config.bookie_id)
        stored = await store.read_cookie(bookie)
        if stored is None or stored.value != data:
            await store.write_cookie(bookie, data, None if stored is None else stored.version)
        for directory in self._java.directories:
            self._observer.step("put Java's files in their place")
            java_bookie.give_back(self._files, directory)
        for disk in self._disks:
            self._observer.step("remove CONVERSION")
            unlink_durably(self._files, disk / CONVERSION_NAME)

    def _remove_ours(self, directory: Path) -> None:
        identity = read_identity(self._files, directory)
        if identity is not None and directory == self._config.journal:
            for name in self._files.listdir(directory):
                if len(name) == len(str(identity.uuid)):
                    java_bookie.remove_tree(self._files, directory / name)
        for name in (ENTRY_LOG_DIR, INDEX_DIR):
            java_bookie.remove_tree(self._files, directory / name)
        for name in _OURS:
            if self._files.exists(directory / name):
                self._files.unlink(directory / name)
        self._files.fsync_dir(directory)


class _LogWriters:
    """Java's entry log files of one segment: one in each directory that gets entries of it."""

    def __init__(self, files: Files, java: JavaBookie, log_id: int) -> None:
        self._files = files
        self._paths = [
            java_bookie.tree(Path(each)) / log_file_name(log_id) for each in java.ledger_dirs
        ]
        self._stack = ExitStack()
        self._writers: dict[int, EntryLogWriter] = {}

    def append(self, number: int, ledger: int, body: bytes) -> None:
        """Append an entry to the file in the directory with this number."""
        if number not in self._writers:
            file = self._files.open_append(self._paths[number])
            self._stack.callback(file.close)
            self._writers[number] = EntryLogWriter(file)
        self._writers[number].append(ledger, body)

    def end(self) -> None:
        """Complete the files and make them durable, names included."""
        for number, writer in self._writers.items():
            writer.end()
            self._files.fsync_dir(self._paths[number].parent)

    def close(self) -> None:
        self._stack.close()


def _java_state(state: LedgerRecord, packet: bytes | None) -> JavaLedger:
    return JavaLedger(state.master_key or b"", state.fenced, packet)
