"""A Pulsar broker from Maven Central, in a process of its own, and its admin API.

``PULSAR_VERSION`` names another version than that of broker/pom.xml: 4.2.4, say.
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from tests.harness.java import JavaProcess, java_command, pulsar_jars
from tests.harness.processes import free_port

HERE = Path(__file__).parent / "broker"
POM = HERE / "pom.xml"
OPTIONS = [
    "-Dlog4j2.level=INFO",
    "-Dpulsar.allocator.exit_on_oom=false",
    *(
        f"--add-opens={package}=ALL-UNNAMED"
        for package in (
            "java.base/java.lang",
            "java.base/sun.net",
            "java.management/sun.management",
            "jdk.management/com.sun.management.internal",
        )
    ),
]
SETTINGS = {
    "clusterName": "bkbox",
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "managedLedgerDefaultEnsembleSize": "2",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "2",
    "managedLedgerMaxEntriesPerLedger": "50",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "retentionCheckIntervalInSeconds": "2",
    "defaultRetentionTimeInMinutes": "0",
    "defaultRetentionSizeInMB": "0",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "allowAutoTopicCreationType": "non-partitioned",
    "defaultNumberOfNamespaceBundles": "1",
    "loadBalancerEnabled": "false",
    "transactionCoordinatorEnabled": "true",
    "webSocketServiceEnabled": "false",
    "functionsWorkerEnabled": "false",
    "managedLedgerNumSchedulerThreads": "2",
    "numIOThreads": "2",
    "numHttpServerThreads": "8",
    "bookkeeperClientNumWorkerThreads": "2",
    "brokerShutdownTimeoutMs": "20000",
}
"""Small, with ledgers that are rolled over after 50 entries (batches) and deleted once they are consumed."""


class Broker(JavaProcess):
    """One broker, alone in its cluster; it keeps its ports over restarts. Its ledgers are on the bookies of a
    ``metadata-store:`` URI. ``settings``: beside or instead of SETTINGS."""

    def __init__(self, root: Path, uri: str, **settings: str) -> None:
        super().__init__("broker", root / "broker.log")
        self._root = root
        self._store = uri.removeprefix("metadata-store:")
        self._port, self._web = free_port(), free_port()
        self._configuration = root / "broker.conf"
        lines = {
            **SETTINGS,
            **settings,
            "brokerServicePort": str(self._port),
            "webServicePort": str(self._web),
            "metadataStoreUrl": self._store,
            "configurationMetadataStoreUrl": self._store,
            "bookkeeperMetadataServiceUri": uri,
        }
        self._configuration.write_text("".join(f"{key}={lines[key]}\n" for key in lines))
        self.classes = f"{pulsar_jars(HERE / 'pom.xml')}/*"

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self._port}"

    def initialise(self) -> None:
        """Writes Pulsar's metadata; that of the bookies is there, and is named by ``zk:`` alone."""
        server, _, root = self._store.removeprefix("zk:").partition("/")
        web = f"http://127.0.0.1:{self._web}"
        self.run(
            "org.apache.pulsar.PulsarClusterMetadataSetup",
            *("--cluster", "bkbox", "--metadata-store", self._store),
            *("--configuration-metadata-store", self._store),
            *("--existing-bk-metadata-service-uri", f"zk://{server}/{root}/ledgers"),
            *("--web-service-url", web, "--broker-service-url", self.url),
            *("--initial-num-transaction-coordinators", "1"),
        )

    def start(self) -> Broker:
        """Returns when it serves the default namespace."""
        main = "org.apache.pulsar.PulsarBrokerStarter"
        arguments = ("--broker-conf", str(self._configuration))
        self.launch(self.command(main, *arguments, heap_mb=768))
        self.wait_until(self._serves)
        return self

    def run(self, main: str, *arguments: str) -> None:
        """Runs a main class, or a file of Java source, with the broker's class path."""
        done = subprocess.run(
            self.command(main, *arguments, heap_mb=256),
            cwd=self._root,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]

    def ask(self, path: str, method: str = "GET") -> Any:
        """The response of its admin API, below /admin/v2."""
        url = f"http://127.0.0.1:{self._web}/admin/v2/{path}"
        with urllib.request.urlopen(
            urllib.request.Request(url, method=method), timeout=60
        ) as found:
            return json.loads(found.read() or b"null")

    def command(self, main: str, *arguments: str, heap_mb: int) -> list[str]:
        return java_command(
            main, *arguments, heap_mb=heap_mb, options=OPTIONS, classes=self.classes
        )

    def _serves(self) -> bool:
        try:
            self.ask("brokers/health")
        except json.JSONDecodeError:
            return True  # it says "ok", not as JSON
        except OSError:
            pass
        return False
