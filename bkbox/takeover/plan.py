"""The plan of a takeover: what the disks of a stopped Java bookie hold, and whether it can be converted in place.

Everything that would stop the conversion is looked for before anything is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from pathlib import Path

from bkbox.base.commandline import plain_command
from bkbox.base.text import counted
from bkbox.base.values import frozen_struct
from bkbox.config.schema import Config
from bkbox.errors import BookieRunningError, CookieMismatchError, OperatorError
from bkbox.metadata.base import MetadataStore
from bkbox.storage.disk.conversion import Conversion, Direction, Phase, read_conversion
from bkbox.storage.files import Files
from bkbox.storage.log.segment import RECORD_HEADER_BYTES
from bkbox.takeover import java_rocksdb
from bkbox.takeover.java_bookie import (
    JavaBookie,
    Storage,
    read_cookies,
    refuse_listening,
    tree,
    was_unclean,
)
from bkbox.takeover.java_entry_log import LENGTH_BYTES, EntryLogScan, parse_log_file_name
from bkbox.takeover.java_states import LedgerStates, journal_bytes, journal_files, read_states
from bkbox.wire.metadata import cookie as cookies

_SPARE_BYTES = 64 << 20
"""Bytes that a file system has to have left at any time, for indexes and small files."""

_SAMPLE_ENTRIES = 1000


@frozen_struct
class LogFile:
    """One entry log file of Java's: ``disk`` is the number of its ledger directory. ``grown_bytes``: about how many
    bytes its entries take in bkbox's log.
    """

    disk: int
    log_id: int
    path: Path
    size: int
    grown_bytes: int


@frozen_struct
class Cluster:
    """The content of the metadata store: every ledger that exists, and the id of the cluster."""

    ledgers: frozenset[int]
    instance_id: str


@frozen_struct
class TakeoverPlan:
    """``bookie_id``: as in Java's cookie. ``states``: of the ledgers that exist. ``deleted``: how many ledgers of the
    bookie do not any more; their entries are left out. ``begun``: the conversion that was interrupted.
    """

    bookie_id: str
    logs: tuple[LogFile, ...]
    journal: tuple[tuple[Path, int], ...]
    journal_bytes: int
    states: LedgerStates
    deleted: int
    begun: Conversion | None

    @property
    def total_bytes(self) -> int:
        return sum(each.size for each in self.logs) + self.journal_bytes

    def lines(self) -> list[str]:
        """The plan as text."""
        states = self.states.ledgers.values()
        fenced = sum(each.fenced for each in states)
        keyless = sum(each.known_key is None for each in states)
        found = [
            f"bookie {self.bookie_id}: {counted(len(self.logs), 'entry log file')} to convert",
            f"{counted(len(self.states.ledgers), 'ledger')}, {fenced} of them fenced"
            + (f", {keyless} without a known master key" if keyless else ""),
            f"{counted(self.deleted, 'ledger')} no longer in the metadata store: left out",
            f"{counted(len(self.journal), 'journal file')} to replay",
        ]
        return found + [
            f"something may be missing: {each}; the first start fences what may be incomplete and repairs it from peers"
            for each in self.states.losses
        ]


async def read_cluster(store: MetadataStore, bookie_id: str, port: int) -> Cluster:
    """Read what the metadata store has of a bookie that has to be stopped. BookieRunningError, MetadataError."""
    for bookie in await store.bookies():
        if str(bookie) == bookie_id:
            raise BookieRunningError(
                f"bookie {bookie_id} is registered in the metadata store: stop Java's bookie first. If it was killed, "
                "its registration ends with its session in ZooKeeper (zkTimeout)"
            )
    refuse_listening(port)
    ledgers = {int(ledger) async for page in store.ledger_ranges() for ledger in page}
    return Cluster(frozenset(ledgers), await store.instance_id())


def begun_conversion(
    files: Files, disks: Iterable[Path], direction: Direction
) -> Conversion | None:
    """The conversion that was interrupted on these disks, FINISHING if it is on any; None if none was begun. Raises
    OperatorError for the other direction, DiskError.
    """
    found = [each for disk in disks if (each := read_conversion(files, disk)) is not None]
    for each in found:
        if each.direction is not direction:
            raise OperatorError(
                f"`bkbox {each.direction}` was interrupted on these disks: run that command again to finish it first"
            )
    finishing = [each for each in found if each.phase is Phase.FINISHING]
    return next(iter(finishing or found), None)


def refuse_other_disks(java: JavaBookie, config: Config) -> None:
    """Raises OperatorError if the two configurations do not name the same directories."""
    ours = sorted(map(str, config.disks))
    theirs = sorted(str(Path(each)) for each in java.ledger_dirs)
    if ours != theirs:
        raise OperatorError(
            f"{config.path} names the disks {', '.join(ours)}, and {java.name} {', '.join(theirs)}: they have to be "
            f"the same. `{plain_command('config', 'import', java.name)}` makes such a configuration"
        )


def make_plan(
    java: JavaBookie, config: Config, files: Files, cluster: Cluster, *, fence_all: bool
) -> TakeoverPlan:
    """Look at everything, change nothing. ``fence_all``: do without the index of Java's ledgers. Raises OperatorError
    for all that forbids the conversion, DiskError.
    """
    refuse_other_disks(java, config)
    begun = begun_conversion(files, config.disks, Direction.TAKEOVER)
    if begun is not None and begun.phase is Phase.FINISHING:
        return TakeoverPlan(config.bookie_id, (), (), 0, LedgerStates(), 0, begun)
    bookie_id = _identified(java, config, files, cluster)
    if java.storage is Storage.DB:
        for directory in java.index_dirs:
            java_rocksdb.refuse_in_use(tree(Path(directory)))
    fence_all = fence_all or (begun is not None and begun.fence_all)
    if java.storage is Storage.DB and not fence_all and not java_rocksdb.is_installed():
        raise OperatorError(
            "master keys, fences and explicit LACs are in a RocksDB database, and the package that reads it is not "
            f"installed: {java_rocksdb.INSTALL}. Without it, --fence-all fences every ledger"
        )
    states = read_states(java, files, fence_all=fence_all)
    if was_unclean(java) and not java.is_journaled:
        states.losses.append(
            "Java's bookie was not stopped in order, and its entries were not in a synced journal"
        )
    living = {each: state for each, state in states.ledgers.items() if each in cluster.ledgers}
    logs = tuple(log_files(java, files))
    journal = tuple(journal_files(java, files))
    plan = TakeoverPlan(
        bookie_id,
        logs,
        journal,
        journal_bytes(files, list(journal)),
        LedgerStates(living, states.home, states.losses),
        len(states.ledgers) - len(living),
        begun,
    )
    _refuse_full(java, files, plan)
    return plan


def _identified(java: JavaBookie, config: Config, files: Files, cluster: Cluster) -> str:
    cookie = read_cookies(java, files)
    expected = cookies.cookie_of(config.bookie_id, (), (), None, cluster.instance_id)
    for name, found, wanted, where in (
        ("bookieHost", cookie.bookie_host, expected.bookie_host, f"{config.path} says"),
        ("instanceId", cookie.instance_id, expected.instance_id, "the metadata store says"),
    ):
        if found != wanted:
            hint = (
                f". The bookie keeps its id: set bookie_id or advertised_host in {config.path}"
                if name == "bookieHost"
                else ""
            )
            raise CookieMismatchError(
                f"{name} of Java's cookies is {found}, and {where} {wanted}{hint}"
            )
    return config.bookie_id


def log_files(java: JavaBookie, files: Files) -> list[LogFile]:
    """Java's entry log files in the order in which they were written. DamagedError, DiskError."""
    found = []
    for number, directory in enumerate(java.ledger_dirs):
        folder = tree(Path(directory))
        for name in files.listdir(folder):
            log_id = parse_log_file_name(name)
            if log_id is None:
                continue
            path = folder / name
            with closing(files.open_read(path)) as file:
                size = file.size()
                sample = [
                    len(each.body)
                    for each in islice(iter(EntryLogScan(file, path)), _SAMPLE_ENTRIES)
                ]
            more = RECORD_HEADER_BYTES - LENGTH_BYTES
            grown = size + size * more * len(sample) // max(sum(sample), 1)
            found.append(LogFile(number, log_id, path, size, grown))
    return sorted(found, key=lambda each: (each.log_id, each.disk))


def _refuse_full(java: JavaBookie, files: Files, plan: TakeoverPlan) -> None:
    """Raises OperatorError if a file system has not the space for its largest file beside what the rest grows by."""
    needs: dict[int, int] = {}
    names: dict[int, str] = {}
    journal = plan.journal_bytes // len(java.ledger_dirs)
    for number, directory in enumerate(java.ledger_dirs):
        device = Path(directory).stat().st_dev
        ours = [each for each in plan.logs if each.disk == number]
        largest = max((each.grown_bytes for each in ours), default=0)
        growth = sum(each.grown_bytes - each.size for each in ours)
        needs[device] = max(needs.get(device, _SPARE_BYTES), largest + _SPARE_BYTES) + growth
        needs[device] += journal
        names[device] = directory
    for device, needed in needs.items():
        free = files.space(Path(names[device])).free
        if free < needed:
            raise OperatorError(
                f"{names[device]} has {free:,} bytes free, and its conversion needs {needed:,} at a time: make room, "
                "or let Java's bookie compact first"
            )
