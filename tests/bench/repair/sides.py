"""Both sides behind the same few calls: three bookies, one of which loses its disk, and one that never comes back.

Each is configured for the same promise: entries are acknowledged when they are written, without a journal for them, and
what was lost is brought back from the others (``ack_after = write`` here; there ``journalWriteData=false`` with
``dataIntegrityChecking``). All else is as each ships it.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from bkbox.api.admin import client as admin
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.config.load import load
from bkbox.errors import BkboxError
from tests.bench.peers.java import ZooKeeper, command
from tests.harness.java import JavaProcess
from tests.harness.processes import BKBOX, BookieProcess, bkbox, free_port
from tests.harness.waiting import wait_for
from tests.interop.javaparts import serves

SESSION_MS = 6_000
_HEAP_MB, _DIRECT_MB = 1_024, 1_024

_JAVA = {
    "allowLoopback": "true",
    "listeningInterface": "lo",
    "advertisedAddress": "127.0.0.1",
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "httpServerEnabled": "false",
    "autoRecoveryDaemonEnabled": "false",
    "enableStatistics": "false",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.98",
    "zkTimeout": str(SESSION_MS),
    "journalWriteData": "false",
    "dataIntegrityChecking": "true",
    "dataIntegrityStampMissingCookies": "true",
    "lostBookieRecoveryDelay": "0",
    "auditorPeriodicCheckInterval": "0",
}


class Side(ABC):
    """``bookies`` are their ids. A bookie is named by its place."""

    name: str
    uri: str

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bookies: list[str] = []

    @abstractmethod
    def add_bookie(self) -> None:
        """One more, with nothing on it; returns when it serves."""

    @abstractmethod
    def lose_disk(self, place: int) -> None:
        """It is killed and comes back with an empty disk; returns when the repair has begun."""

    @abstractmethod
    def kill(self, place: int) -> None:
        """For good."""

    @abstractmethod
    def is_idle(self, place: int) -> bool:
        """Whether it says that its repair is over, or has no way to say."""

    @abstractmethod
    def autorecovery(self) -> contextlib.AbstractContextManager[None]:
        """Auditor and replication worker, in a process beside the bookies."""

    @abstractmethod
    def close(self) -> None: ...


class Bkbox(Side):
    name = "bkbox"

    def __init__(self, root: Path, zookeeper: ZooKeeper) -> None:
        super().__init__(root)
        self.uri = zookeeper.new_cluster()
        self._processes: list[BookieProcess] = []

    def add_bookie(self) -> None:
        number = len(self._processes)
        bookie = BookieProcess(self.root, self.uri, name=f"bkbox{number}")
        bookie.init(disks=1, ack_after="write", run_dir=str(bookie.root))
        self._processes.append(bookie)
        self.bookies.append(bookie.bookie_id)
        bookie.start()

    def lose_disk(self, place: int) -> None:
        bookie = self._processes[place]
        bookie.kill()
        shutil.rmtree(bookie.disks[0])
        bookie.disks[0].mkdir()
        bkbox("cookie", "repair", "--config", str(bookie.config), "--yes")
        bookie.start(timeout=300)

    def kill(self, place: int) -> None:
        self._processes[place].kill()

    def is_idle(self, place: int) -> bool:
        socket = admin_socket_path(load(self._processes[place].config, {}))
        try:
            return admin.fetch_status(socket, timeout=30).limbo.ledgers == 0
        except BkboxError:
            return False

    @contextlib.contextmanager
    def autorecovery(self) -> Iterator[None]:
        arguments = ["autorecovery", "run", "--metadata", self.uri, "--lost-bookie-delay", "0s"]
        with (self.root / "autorecovery.log").open("wb") as log:
            process = subprocess.Popen(
                [*BKBOX, *arguments, "--full-check-every", "0s"],
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
            try:
                yield
            finally:
                process.terminate()
                process.wait(60)

    def close(self) -> None:
        for bookie in self._processes:
            bookie.ensure_gone()


class _JavaPart(JavaProcess):
    def __init__(self, root: Path, name: str, uri: str) -> None:
        self.root = root / name
        self.root.mkdir(parents=True)
        super().__init__(name, self.root / "log")
        self.port = free_port()
        self.configuration = self.root / "bk.conf"
        settings = {
            **_JAVA,
            "metadataServiceUri": uri,
            "bookiePort": str(self.port),
            "journalDirectories": str(self.root / "journal"),
            "ledgerDirectories": str(self.root / "ledgers"),
        }
        self.configuration.write_text("".join(f"{key}={settings[key]}\n" for key in settings))

    def launch_main(self, main: str, option: str) -> None:
        arguments = (option, str(self.configuration))
        self.launch(command(main, *arguments, heap_mb=_HEAP_MB, direct_mb=_DIRECT_MB))


class Java(Side):
    name = "java"

    def __init__(self, root: Path, zookeeper: ZooKeeper) -> None:
        super().__init__(root)
        self.uri = zookeeper.new_cluster()
        self._processes: list[_JavaPart] = []

    def add_bookie(self) -> None:
        bookie = _JavaPart(self.root, f"java{len(self._processes)}", self.uri)
        self._processes.append(bookie)
        self.bookies.append(f"127.0.0.1:{bookie.port}")
        self._start(bookie)

    def _start(self, bookie: _JavaPart) -> None:
        bookie.launch_main("org.apache.bookkeeper.server.Main", "--conf")
        bookie.wait_until(lambda: serves(bookie.port), 300)

    def lose_disk(self, place: int) -> None:
        bookie = self._processes[place]
        bookie.kill()
        for folder in ("journal", "ledgers"):
            shutil.rmtree(bookie.root / folder)
        wait_for(lambda: not self._serves(place), "its session to end", SESSION_MS / 1000 + 30)
        self._start(bookie)

    def _serves(self, place: int) -> bool:
        """True as long as it is registered: one that is down is listed, too, by its cookie."""
        writable = bkbox("cluster", "list", "--rw", "--metadata", self.uri, "-o", "json").stdout
        return self.bookies[place] in writable

    def kill(self, place: int) -> None:
        self._processes[place].kill()

    def is_idle(self, place: int) -> bool:
        return True

    @contextlib.contextmanager
    def autorecovery(self) -> Iterator[None]:
        part = _JavaPart(self.root, "autorecovery", self.uri)
        part.launch_main("org.apache.bookkeeper.replication.AutoRecoveryMain", "-c")
        try:
            yield
        finally:
            part.kill()

    def close(self) -> None:
        for bookie in self._processes:
            bookie.kill()
