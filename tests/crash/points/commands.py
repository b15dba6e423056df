"""Crash points of what an operator starts: ``bkbox init``, ``bkbox cookie repair``, ``bkbox index rebuild`` and a whole
``bkbox run``, with the embedded metadata store on the disk that is lost as well.

Each is run as a real process under shim.c. What a crash leaves is judged as an operator finds it: a command that did
not come to its end is given again, then the cookies have to agree, and the bookie has to keep its promises
(verdict.py).
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from bkbox.config import load as configuration
from bkbox.config.schema import Config
from bkbox.errors import BkboxError, OperatorError
from bkbox.metadata import connect
from bkbox.storage.files import RealFiles
from bkbox.storage.index.ordered_store import INDEX_DIR
from bkbox.storage.log.records import AckAfter
from bkbox.supervisor.boot import cookie_repair, cookies, init_bookie
from bkbox.supervisor.boot.cookies import Evidence
from bkbox.supervisor.disks.disk_inspection import DirState, stamp
from bkbox.supervisor.supervisor import kernel_boot_id
from tests.crash.points.enumeration import Failure, Pick, State, Tally, empty, states
from tests.crash.points.filesystem import build
from tests.crash.points.miniature import BOOKIE, Miniature
from tests.crash.points.promises import Promises
from tests.crash.points.recorder import Recording, record
from tests.crash.points.verdict import Crash, examine

_SETTINGS = {"disk_reserve_bytes": 0, "disk_usage_max": 1.0, "segment_bytes_max": 262_144}


class Operator:
    """A bookie in the watched folder, and its configuration outside of it.

    The disks are to be made in a folder that is not there yet.
    """

    def __init__(
        self, watched: Path, side: Path, mode: AckAfter, listen: str = str(BOOKIE)
    ) -> None:
        self.watched = watched
        self.mode = mode
        self.config_file = side / "bookie.toml"
        self._listen = listen
        (watched / "metadata").mkdir()
        self.disks = [watched / "new" / "disk1"]
        self.journal = watched / "new" / "journal" if mode is AckAfter.JOURNAL else None

    def configure(self, *disks: str) -> Config:
        """Write the configuration with these disks."""
        self.disks = [self.watched / "new" / disk for disk in disks]
        values: dict[str, object] = {
            **_SETTINGS,
            "listen": self._listen,
            "metadata": f"sqlite:{self.watched}/metadata/cluster.db",
            "disks": [str(disk) for disk in self.disks],
            "ack_after": self.mode.value,
        }
        if self.journal is not None:
            values["journal"] = str(self.journal)
        self.config_file.write_text(configuration.render(values))
        return self.config

    @property
    def config(self) -> Config:
        return configuration.load(self.config_file, {})

    def init_arguments(self) -> list[str]:
        """Of `bkbox init`, with the configuration as it stands."""
        config = self.config
        self.config_file.unlink()
        arguments = ["init", "--config", str(self.config_file), "--metadata", config.metadata]
        arguments += ["--listen", config.listen, "--set", f"ack_after={self.mode.value}"]
        for disk in self.disks:
            arguments += ["--disk", str(disk)]
        if self.journal is not None:
            arguments += ["--journal", str(self.journal)]
        for key, value in _SETTINGS.items():
            arguments += ["--set", f"{key}={value}"]
        return arguments

    def bookie(self, promises: Promises) -> Miniature:
        bookie = Miniature(self.disks, self.journal, self.mode, promises.note, 262_144)
        bookie.witnessed = False  # the record is in the metadata store that the commands use
        return bookie

    def initialise(self) -> None:
        asyncio.run(init_bookie.initialise(self.config))

    def repair(self) -> None:
        asyncio.run(cookie_repair.apply_repair(self.config))

    def mismatch(self) -> str:
        """What the cookies say against a start, nothing if they agree."""
        report = asyncio.run(cookie_repair.inspect(self.config))
        return "" if report.ok else "; ".join(map(str, report.differences))

    def evidence(self) -> Evidence:
        """What is found on the disks and in the metadata store."""

        async def gather() -> Evidence:
            async with await connect(self.config.metadata) as store:
                return await cookies.gather(self.config, store, RealFiles())

        return asyncio.run(gather())


def run_init_again(operator: Operator) -> None:
    """What the operator does who was not told that the init is done."""
    try:
        operator.initialise()
    except OperatorError as error:
        if "is known in" not in str(error):
            raise


def repair_if_asked(operator: Operator) -> None:
    """What the operator does whose bookie refuses to start."""
    if operator.mismatch():
        operator.repair()


@dataclass(slots=True)
class Command:
    """``again``: what the operator does after a crash in the middle. ``lost``: a disk was lost before; ``repairs``: one
    that is added may be taken for the replacement of a lost one, because the crash came in the middle; ``rebuilds``:
    the start after a kill may have to make the index anew.
    """

    operator: Operator
    module: str
    arguments: list[str]
    promises: Promises
    again: Callable[[Operator], None]
    lost: bool = False
    repairs: bool = False
    rebuilds: bool = False
    boot_id: str = ""

    def record(self) -> Recording:
        return record(self.operator.watched, self.module, self.arguments, self.promises)

    def enumerate(
        self, recording: Recording, pick: Pick, seed: str, only: Collection[int] | None = None
    ) -> Tally:
        """Examine what may be left at each point, or at some only."""
        tally = Tally(points=recording.points if only is None else len(only))
        calls = [call for call in recording.calls if call.kind != "N"]
        for state in states(recording, pick, seed, only):
            tally.states += 1
            empty(self.operator.watched)
            build(state.tree, self.operator.watched)
            at_end = state.point == len(calls)
            text = self._judge(state, at_end, random.Random(f"{seed} {state.point}"))
            if text:
                call = "the end" if at_end else str(calls[state.point])
                tally.failures.append(Failure(state.point, state.how, call, text))
        return tally

    def _judge(self, state: State, at_end: bool, rng: random.Random) -> str:
        operator = self.operator
        bookie = operator.bookie(state.promises)
        bookie.boot_id = self.boot_id or bookie.boot_id
        host = state.loss is not None
        crash = Crash(host, self.repairs, self.lost, rebuilds=host or self.rebuilds)
        try:
            if not at_end:
                self.again(operator)
            wrong = operator.mismatch()
            if wrong:
                return f"the cookies do not agree: {wrong}"
            evidence = operator.evidence()
            examine(bookie, state.promises, crash, rng)
            for item in evidence.disks:
                if item.state is DirState.REPLACED:  # phase one is durable
                    stamp(RealFiles(), item.path, evidence.expected)
        except (BkboxError, AssertionError) as error:
            return f"{type(error).__name__}: {error}"
        return operator.mismatch()


# ---- the commands ---------------------------------------------------------------------------------------


def init(operator: Operator) -> Command:
    operator.configure("disk1", "disk2")
    arguments = operator.init_arguments()
    return Command(operator, "bkbox.cli.main", arguments, Promises(), run_init_again)


def _used(operator: Operator, *disks: str) -> Promises:
    """Initialised, used and stopped in order."""
    operator.configure(*disks)
    operator.initialise()
    promises = Promises()
    bookie = operator.bookie(promises)
    bookie.start("before")
    bookie.add(1, 0, 1, 2)
    bookie.add(2, 0, 1)
    bookie.fence(3)
    bookie.fence(4)
    bookie.write_lac(1, 1)
    bookie.stop()
    return promises


def add_disk(operator: Operator) -> Command:
    promises = _used(operator, "disk1")
    operator.configure("disk1", "disk2")
    return _repair(operator, promises, lost=False)


def replace_disk(operator: Operator) -> Command:
    """The second disk was lost, and an empty one is there."""
    promises = _used(operator, "disk1", "disk2")
    promises.lacs = {}  # that of ledger 1 goes with the disk: nobody repairs it
    shutil.rmtree(operator.disks[1])
    operator.disks[1].mkdir()
    return _repair(operator, promises, lost=True)


def _repair(operator: Operator, promises: Promises, *, lost: bool) -> Command:
    arguments = ["cookie", "repair", "--yes", "--config", str(operator.config_file)]
    return Command(operator, "bkbox.cli.main", arguments, promises, repair_if_asked, lost, True)


def rebuild(operator: Operator) -> Command:
    """`bkbox index rebuild` for two disks, one of which has no index any more."""
    promises = _used(operator, "disk1", "disk2")
    shutil.rmtree(operator.disks[0] / INDEX_DIR)
    arguments = ["index", "rebuild", "--config", str(operator.config_file)]
    command = Command(operator, "bkbox.cli.main", arguments, promises, lambda _operator: None)
    command.rebuilds = True
    return command


def run(operator: Operator) -> Command:
    """A whole bookie, with its processes: start, requests, stop in order (wholebookie.py)."""
    promises = _used(operator, "disk1", "disk2")
    arguments = [str(operator.config_file), "{notes}"]
    module = "tests.crash.points.wholebookie"
    command = Command(operator, module, arguments, promises, lambda _operator: None)
    command.boot_id = kernel_boot_id()
    return command


COMMANDS = {
    "init": init,
    "add-disk": add_disk,
    "replace-disk": replace_disk,
    "rebuild": rebuild,
    "run": run,
}
