"""Apache's side: bookies configured as upstream ships them, with the heap that is asked for.

Only what has to be is changed: loopback, folders, the storage that Pulsar uses, and, for bookies
that write no journal, ``journalWriteData``. The collector and its pause goal are those of upstream's
conf/bkenv.sh. ZooKeeper is there because Java's bookie needs one.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Sequence
from pathlib import Path

from tests.harness.java import JavaProcess, class_path
from tests.harness.processes import bkbox, free_port
from tests.interop.javaparts import serves

SESSION_MS = 3_600_000
"""Nothing may expire while a system is stopped because another one is measured."""

_OPTIONS = [
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=10",
    "-XX:+ParallelRefProcEnabled",
    "-XX:+DisableExplicitGC",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
    "-Dio.netty.leakDetectionLevel=disabled",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/java.util.zip=ALL-UNNAMED",
]

_DAY_S = 24 * 3600
_SETTINGS = {
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
    "gcWaitTime": str(_DAY_S * 1000),
    "minorCompactionInterval": str(_DAY_S),
    "minorCompactionThreshold": "0",
    "majorCompactionInterval": str(_DAY_S),
    "majorCompactionThreshold": "0",
}
"""The last five: no collection and no compaction, which a load of seconds would meet by chance. The intervals because
Java's bookie does not start where they are shorter than gcWaitTime."""


def command(
    main: str, *arguments: str, heap_mb: int, direct_mb: int, classes: str | None = None
) -> list[str]:
    """The command line of a JVM that is to be as fast as it can be; it dies with its parent. ``classes``: its class
    path, that of the interop tests by default."""
    return [
        *("setpriv", "--pdeathsig", "KILL", "java", *_OPTIONS),
        *(f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", f"-XX:MaxDirectMemorySize={direct_mb}m"),
        *("-cp", classes or class_path(), main, *arguments),
    ]


class ZooKeeper(JavaProcess):
    """One server, for all bookies of a run."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        super().__init__("zookeeper", folder / "log")
        self._folder = folder
        self._numbers = itertools.count()
        self.port = free_port()

    def start(self) -> ZooKeeper:
        configuration = self._folder / "zoo.cfg"
        configuration.write_text(
            f"tickTime=2000\ndataDir={self._folder / 'data'}\n"
            f"clientPortAddress=127.0.0.1\nclientPort={self.port}\n"
            f"maxSessionTimeout={SESSION_MS}\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            "forceSync=no\n"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self.launch(command(main, str(configuration), heap_mb=256, direct_mb=64))
        self.wait_until(lambda: _connects(self.port))
        return self

    def new_cluster(self) -> str:
        """The metadata URI of a new cluster."""
        uri = f"zk+hierarchical://127.0.0.1:{self.port}/cluster{next(self._numbers)}"
        bkbox("cluster", "init", "--metadata", uri)
        return uri


class JavaBookie(JavaProcess):
    """One of Apache's bookies."""

    def __init__(
        self,
        folder: Path,
        uri: str,
        *,
        journal: bool,
        heap_mb: int,
        direct_mb: int,
        ledgers: Sequence[Path] = (),
    ) -> None:
        """``ledgers``: the folders of its disks; by default one in ``folder``."""
        folder.mkdir(parents=True)
        super().__init__("java bookie", folder / "log")
        self.folder = folder
        self.port = free_port()
        self._heap = (heap_mb, direct_mb)
        self._configuration = folder / "bk.conf"
        settings = {
            **_SETTINGS,
            "metadataServiceUri": uri,
            "bookiePort": str(self.port),
            "journalDirectories": str(folder / "journal"),
            "ledgerDirectories": ",".join(map(str, ledgers or [folder / "ledgers"])),
            "journalWriteData": str(journal).lower(),
        }
        self._configuration.write_text("".join(f"{key}={settings[key]}\n" for key in settings))

    def launch_bookie(self) -> None:
        main, arguments = "org.apache.bookkeeper.server.Main", ("--conf", str(self._configuration))
        heap_mb, direct_mb = self._heap
        self.launch(command(main, *arguments, heap_mb=heap_mb, direct_mb=direct_mb))

    def start(self) -> JavaBookie:
        self.launch_bookie()
        self.wait_until(lambda: serves(self.port))
        return self


def _connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True
