"""Java's side of a cluster: its bookie, its autorecovery process and its command line.

Everything listens on loopback, keeps its files in a folder of its own and logs to a file there.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.harness import raw
from tests.harness.java import JavaProcess, class_path, java_command, pulsar_jars
from tests.harness.processes import free_port

ZOOKEEPER_TIMEOUT_MS = 4000
"""A bookie that was killed comes back once ZooKeeper has forgotten it, which takes that long."""

BOOKIE_SETTINGS = {
    "allowLoopback": "true",
    "listeningInterface": "lo",
    "advertisedAddress": "127.0.0.1",
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "httpServerEnabled": "false",
    "autoRecoveryDaemonEnabled": "false",
    "enableStatistics": "false",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.98",
    "minUsableSizeForIndexFileCreation": "1",
    "minUsableSizeForEntryLogCreation": "1",
    "minUsableSizeForHighPriorityWrites": "1",
    "journalPreAllocSizeMB": "2",
    "journalMaxSizeMB": "64",
    "entryLogFilePreallocationEnabled": "false",
    "dbStorage_writeCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheMaxSizeMb": "16",
    "dbStorage_rocksDB_blockCacheSize": str(4 << 20),
    "dbStorage_rocksDB_writeBufferSizeMB": "4",
    "serverNumIOThreads": "2",
    "numAddWorkerThreads": "1",
    "numReadWorkerThreads": "2",
    "numHighPriorityWorkerThreads": "1",
    "zkTimeout": str(ZOOKEEPER_TIMEOUT_MS),
}
"""Small, quick to start, and otherwise as a bookie is configured by default (journal synced)."""

RECOVERY_SETTINGS = {
    "allowLoopback": "true",
    "advertisedAddress": "127.0.0.1",
    "auditorPeriodicBookieCheckInterval": "5",
    "auditorPeriodicCheckInterval": "0",
    "lostBookieRecoveryDelay": "0",
    "openLedgerRereplicationGracePeriod": "500",
    "rwRereplicateBackoffMs": "200",
    "lockReleaseOfFailedLedgerGracePeriod": "1000",
    "httpServerEnabled": "false",
    "enableStatistics": "false",
    "zkTimeout": str(ZOOKEEPER_TIMEOUT_MS),
}


PULSAR_POM = Path(__file__).parent / "pulsardriver" / "pom.xml"
PULSAR_DRIVERS = [
    "-Dbookkeeper.metadata.bookie.drivers="
    "org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
    "-Dbookkeeper.metadata.client.drivers="
    "org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
]


def command_for(
    uri: str, main: str, *arguments: str, heap_mb: int, options: Sequence[str] = ()
) -> list[str]:
    """The command line of one of Apache's processes: with Pulsar's driver where the metadata URI is one of that."""
    if not uri.startswith("metadata-store:"):
        return java_command(main, *arguments, heap_mb=heap_mb, options=options)
    ours = class_path().partition(":")[0]
    return java_command(
        main,
        *arguments,
        heap_mb=heap_mb + 64,
        options=[*PULSAR_DRIVERS, *options],
        classes=f"{ours}:{pulsar_jars(PULSAR_POM)}/*",
    )


class ConfiguredProcess(JavaProcess):
    """A JVM with a folder and a configuration file of its own."""

    def __init__(self, root: Path, name: str, uri: str, port: int, settings: dict[str, str]):
        self.root = root / name
        self.root.mkdir(parents=True, exist_ok=True)
        super().__init__(name, self.root / "log")
        self.metadata = uri
        self.port = port
        self.configuration = self.root / "bk.conf"
        lines = {
            "metadataServiceUri": uri,
            "bookiePort": str(port),
            "journalDirectories": str(self.root / "journal"),
            "ledgerDirectories": str(self.root / "ledgers"),
            **settings,
        }
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        self.configuration.write_text(text)


class JavaBookie(ConfiguredProcess):
    """Apache's bookie."""

    kind = "java"

    def __init__(self, root: Path, uri: str, *, name: str, **settings: str) -> None:
        super().__init__(root, name, uri, free_port(), {**BOOKIE_SETTINGS, **settings})

    @property
    def bookie_id(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def lists_entries(self) -> bool:
        """Whether its storage can say which entries of a ledger it has."""
        return "DbLedgerStorage" not in self.configuration.read_text()

    def launch_bookie(self) -> None:
        self.launch(
            command_for(
                self.metadata,
                "org.apache.bookkeeper.server.Main",
                *("--conf", str(self.configuration)),
                heap_mb=160,
            )
        )

    def start(self) -> JavaBookie:
        self.launch_bookie()
        self.wait_ready()
        return self

    def wait_ready(self) -> None:
        """Until it answers requests, which it does after it has registered."""
        self.wait_until(lambda: serves(self.port))

    def ensure_gone(self) -> None:
        self.kill()


class JavaAutoRecovery(ConfiguredProcess):
    """Apache's auditor and replication worker, in one process beside the bookies."""

    def __init__(self, root: Path, uri: str, **settings: str) -> None:
        # The port is only part of the name under which it takes part in the election.
        super().__init__(root, "autorecovery", uri, free_port(), {**RECOVERY_SETTINGS, **settings})

    def start(self) -> JavaAutoRecovery:
        main = "org.apache.bookkeeper.replication.AutoRecoveryMain"
        self.launch(command_for(self.metadata, main, "-c", str(self.configuration), heap_mb=128))
        return self


def java_shell(
    root: Path, uri: str, *commands: list[str], timeout: float = 100.0, **settings: str
) -> list[tuple[int, str]]:
    """Run commands of Apache's ``bookkeeper shell``, in one JVM: exit status and what it said, of
    each. Its log is on standard error."""
    shell = ConfiguredProcess(root, "shell", uri, 3181, {**RECOVERY_SETTINGS, **settings})
    done = subprocess.run(
        command_for(
            uri,
            "bkbox.interop.Shell",
            str(shell.configuration),
            options=["-Dlog4j2.configurationFile=shell-log4j2.xml"],
            heap_mb=128,
        ),
        input="".join(json.dumps(command) + "\n" for command in commands),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    said = re.findall(r"(.*?)^==== exit status (-?\d+)$\n", done.stdout, re.DOTALL | re.MULTILINE)
    assert len(said) == len(commands), f"{done.returncode}\n{done.stdout}\n{done.stderr[-3000:]}"
    return [(int(status), text) for text, status in said]


def serves(port: int) -> bool:
    """Whether a bookie answers there. (Apache's takes connections before it does that.)"""
    try:
        with raw.RawClient(port, timeout=5) as client:
            return client.read(0, 0).code >= 0
    except (OSError, EOFError):
        return False
