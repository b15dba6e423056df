"""The bookies that take part, each behind the same few calls.

Only one is awake at a time: the others have been stopped with SIGSTOP after they had come to rest.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

from bkbox.bench.bookie import Plan, Target, run
from bkbox.bench.load import Shape
from bkbox.bench.server import Bookie
from bkbox.bench.usage import tree, usage_of
from bkbox.errors import BenchError
from tests.bench.peers.java import JavaBookie, ZooKeeper
from tests.harness import raw

FOLDER_BYTES_MAX = 6 << 30
"""A bookie with more than this is replaced by a new one, for the sake of the disk."""

_WARM = Plan("adds", Shape(16, 4, 64, 1024), 1.0, 5.0, None, 0.0, 60.0)
_WARM_READS = Plan("reads", Shape(16, 4, 64, 1024), 2.0, 2.0, 100_000, 0.0, 60.0)
_NO_HOUSEKEEPING = {"gc_interval_s": 0, "compaction_interval_s": 0, "scrub_interval_s": 0}
"""What comes once in a quarter of an hour or a week would meet a load of seconds by chance, and always the first one
after a bookie was asleep. Java's bookie does without it as well (java.py)."""
_START_S = 120.0
_REST_S = 20.0


class System(ABC):
    """One bookie, or what answers like one. ``begin`` and ``end`` a process; ``forget`` all that it
    has stored, so that the next ``begin`` is that of a new bookie."""

    def __init__(self, name: str, root: Path, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.root = root / name
        self.is_up = False
        self.is_warm = False

    @property
    @abstractmethod
    def target(self) -> Target:
        """Where it answers, with what it is measured by."""

    @abstractmethod
    def launch(self) -> None:
        """Start its process; returns at once."""

    def has_ended(self) -> bool:
        """Whether it is known that it has ended by itself."""
        return False

    def last_words(self) -> str:
        """What its log says of why it does not answer; empty without one."""
        return ""

    @abstractmethod
    def end(self) -> None:
        """Stop it in order."""

    @abstractmethod
    def make(self) -> None:
        """A new one, with nothing stored."""

    def start(self) -> float:
        """Seconds until it answered its first request."""
        if not self.root.exists():
            self.make()
        begin = time.perf_counter()
        self.launch()
        self.is_up = True
        while not answers(self.target.address[1]):
            if self.has_ended() or time.perf_counter() > begin + _START_S:
                raise BenchError(f"{self.name} does not answer{self.last_words()}")
            time.sleep(0.002)
        return time.perf_counter() - begin

    def stop(self) -> None:
        if self.is_up:
            self.wake()
            self.end()
            self.is_up = self.is_warm = False

    def forget(self) -> None:
        """Stop, and delete its files."""
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def ready(self) -> Target:
        """Awake and warm, with room on its disk."""
        if self.is_up and folder_bytes(self.root) > FOLDER_BYTES_MAX:
            self.forget()
        if self.is_up:
            self.wake()
        else:
            self.forget()
            self.start()
        if not self.is_warm:
            self.warm()
            self.is_warm = True
        return self.target

    def warm(self) -> None:
        """Load, until just-in-time compilers have seen it."""
        run(self.target, _WARM, self.rng)
        run(self.target, _WARM_READS, self.rng)

    def sleep(self) -> None:
        """Come to rest, and stop."""
        pid = self.target.pid
        assert pid is not None
        os.sync()
        deadline = time.monotonic() + _REST_S
        while time.monotonic() < deadline:
            before = usage_of(pid).cpu_s
            time.sleep(0.3)
            if usage_of(pid).cpu_s - before < 0.03:
                break
        os.sync()
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Children first: they must not seem hung to their parent."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        pid = self.target.pid
        assert pid is not None
        pids = tree(pid)
        for each in pids if number == signal.SIGSTOP else reversed(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)


class Bkbox(System):
    """bkbox's bookie with metadata of its own."""

    def __init__(
        self,
        name: str,
        root: Path,
        rng: random.Random,
        ack_after: str,
        environment: dict[str, str] | None = None,
        metadata: str | None = None,
    ) -> None:
        super().__init__(name, root, rng)
        self._settings = {"ack_after": ack_after, **_NO_HOUSEKEEPING}
        self._environment = environment
        self._metadata = metadata or f"sqlite:{self.root / 'metadata.db'}"
        self._bookie: Bookie | None = None

    @property
    def bookie(self) -> Bookie:
        assert self._bookie is not None
        return self._bookie

    @property
    def target(self) -> Target:
        return Target(self.bookie.address, self.bookie.pid, self.root)

    def make(self) -> None:
        self._bookie = Bookie(
            self.root, self._metadata, self._settings, self.rng, self._environment
        )

    def launch(self) -> None:
        self.bookie.launch()

    def end(self) -> None:
        self.bookie.stop()

    def warm(self) -> None:
        """What is compiled is compiled."""


class Java(System):
    """Apache's bookie."""

    def __init__(
        self,
        name: str,
        root: Path,
        rng: random.Random,
        zookeeper: ZooKeeper,
        *,
        journal: bool,
        heap_mb: int = 1024,
        direct_mb: int = 2048,
        cluster: str | None = None,
    ) -> None:
        super().__init__(name, root, rng)
        self._zookeeper = zookeeper
        self._journal = journal
        self._memory_mb = (heap_mb, direct_mb)
        self._cluster = cluster
        self._bookie: JavaBookie | None = None

    @property
    def bookie(self) -> JavaBookie:
        assert self._bookie is not None
        return self._bookie

    @property
    def target(self) -> Target:
        assert self.bookie.process is not None
        return Target(("127.0.0.1", self.bookie.port), self.bookie.process.pid, self.root)

    def make(self) -> None:
        uri = self._cluster or self._zookeeper.new_cluster()
        heap_mb, direct_mb = self._memory_mb
        self._bookie = JavaBookie(
            self.root, uri, journal=self._journal, heap_mb=heap_mb, direct_mb=direct_mb
        )

    def launch(self) -> None:
        self.bookie.launch_bookie()

    def has_ended(self) -> bool:
        return not self.bookie.is_running

    def last_words(self) -> str:
        lines = [
            line
            for line in self.bookie.log_tail(100_000).splitlines()
            if "rror" in line or "Exception" in line
        ]
        return "".join(f"\n  {line}" for line in lines[:6])

    def end(self) -> None:
        self.bookie.stop(60)


class Sink(System):
    """``bkbox bench sink``, which appends to a file, with or without syncing it, or does nothing. ``size``: payload,
    in bytes, of the entries that it makes for reads."""

    def __init__(
        self, name: str, root: Path, rng: random.Random, size: int, *, appends: bool, syncs: bool
    ) -> None:
        super().__init__(name, root, rng)
        self._size = size
        self._appends = appends
        self._syncs = syncs
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def target(self) -> Target:
        assert self._process is not None
        return Target(("127.0.0.1", self._port), self._process.pid, self.root)

    def make(self) -> None:
        self.root.mkdir()

    def launch(self) -> None:
        command = [
            *("setpriv", "--pdeathsig", "KILL"),
            *(sys.executable, "-m", "bkbox.cli.main", "bench", "sink", "--size", str(self._size)),
        ]
        if self._appends:
            command += ["--append", str(self.root / "file"), *["--sync"] * self._syncs]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline().rpartition(b":")[2])

    def end(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()

    def warm(self) -> None:
        """What is compiled is compiled."""


def answers(port: int) -> bool:
    """Whether a bookie answers there, whatever it says."""
    try:
        with raw.RawClient(port, timeout=5) as client:
            return client.read(1, 0).code >= 0
    except (OSError, EOFError):
        return False


def folder_bytes(folder: Path) -> int:
    """What it has on the disk; 0 if there is none."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += Path(root, name).stat().st_blocks * 512
    return total
