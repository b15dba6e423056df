"""A cluster on a real ZooKeeper whose bookies are Apache's, bkbox's, or some of each."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.harness.processes import BookieProcess
from tests.harness.processes import bkbox as run_bkbox
from tests.harness.waiting import wait_for
from tests.harness.zookeeper import ZooKeeper
from tests.interop.bkboxclient import BkboxClient
from tests.interop.clients import Client
from tests.interop.javaclient import Driver, JavaClient
from tests.interop.javaparts import JavaAutoRecovery, JavaBookie, java_shell


class BkboxBookie(BookieProcess):
    """bkbox's bookie."""

    kind = "bkbox"
    lists_entries = True

    def log_tail(self, size: int = 6000) -> str:
        return self.stderr[-size:]

    def launch_bookie(self) -> None:
        self.start(wait=False)


Bookie = JavaBookie | BkboxBookie


class InteropCluster:
    """``java`` of Apache's bookies and ``bkbox`` of bkbox's, below one root path of a ZooKeeper."""

    def __init__(
        self,
        root: Path,
        zookeeper: ZooKeeper,
        driver: Driver,
        name: str,
        layout: str = "hierarchical",
        uri: str | None = None,
    ) -> None:
        """``uri``: of another metadata store than that ZooKeeper."""
        # One that is made for a module is made twice where tests of another module are run in between.
        names = (name, *(f"{name}-{number}" for number in range(2, 100)))
        free = next(each for each in names if not (root / each).exists())
        self.root = root / free
        self.root.mkdir()
        self.uri = uri or zookeeper.uri(f"/{free}", layout=layout)
        self.zookeeper = zookeeper
        self.driver = driver
        self.bookies: list[Bookie] = []
        self.autorecovery: JavaAutoRecovery | None = None
        self._clients: dict[str, Client] = {}
        self._made: Counter[str] = Counter()

    def start(self, *, java: int = 0, bkbox: int = 0, **settings: object) -> InteropCluster:
        """Initialise the cluster, by Apache's command or, where it has bkbox bookies alone, by
        bkbox's, and start its bookies. ``settings`` are bkbox's."""
        if java:
            ((status, text),) = self.shell(["initnewcluster"])
            assert status == 0, text
        else:
            run_bkbox("cluster", "init", "--metadata", self.uri)
        for _ in range(java):
            self.add_java()
        for _ in range(bkbox):
            self.add_bkbox(**settings)
        for bookie in self.bookies:
            bookie.launch_bookie()
        for bookie in self.bookies:
            bookie.wait_ready()
        return self

    def add_java(self, **settings: str) -> JavaBookie:
        """One more of Apache's bookies, not started. Every other one has the other storage, the
        only one that can list a ledger's entries."""
        number = self._next_number("java")
        if number % 2 == 1:
            sorted_storage = "org.apache.bookkeeper.bookie.SortedLedgerStorage"
            settings = {"ledgerStorageClass": sorted_storage, **settings}
        bookie = JavaBookie(self.root, self.uri, name=f"java{number}", **settings)
        self.bookies.append(bookie)
        return bookie

    def add_bkbox(self, **settings: object) -> BkboxBookie:
        """One more of bkbox's bookies, not started."""
        name = f"bkbox{self._next_number('bkbox')}"
        bookie = BkboxBookie(self.root, self.uri, name=name)
        self.bookies.append(bookie)
        bookie.init(**{"disks": 1, **settings})
        return bookie

    def lose(self, bookie: Bookie) -> None:
        """It is killed, and nobody will ever start it again."""
        bookie.ensure_gone()
        self.bookies.remove(bookie)

    def _next_number(self, kind: str) -> int:
        self._made[kind] += 1
        return self._made[kind] - 1

    def start_autorecovery(self) -> None:
        """Returns when the auditor is in office."""
        self.autorecovery = JavaAutoRecovery(self.root, self.uri).start()
        client = self.client("java-v3")
        assert isinstance(client, JavaClient)
        wait_for(client.auditor, "an auditor")

    def stop_autorecovery(self) -> None:
        if self.autorecovery is not None:
            self.autorecovery.kill()
            self.autorecovery = None

    def shell(self, *commands: list[str]) -> list[tuple[int, str]]:
        """Exit status and output of commands of Apache's shell: see ``java_shell``."""
        return java_shell(self.root, self.uri, *commands)

    def of_kind(self, kind: str) -> list[Bookie]:
        return [bookie for bookie in self.bookies if bookie.kind == kind]

    def bookie(self, bookie_id: str) -> Bookie:
        (found,) = (each for each in self.bookies if each.bookie_id == bookie_id)
        return found

    def client(self, name: str) -> Client:
        """The client of that name (``java-v3``), made at its first use."""
        if name not in self._clients:
            kind, _, protocol = name.partition("-")
            if kind == "java":
                self._clients[name] = JavaClient(self.driver, self.uri, protocol)
            else:
                self._clients[name] = BkboxClient(self.uri, protocol)
        return self._clients[name]

    def logs(self) -> dict[str, str]:
        """The end of what each part has logged."""
        parts: list[Any] = [self.zookeeper, self.driver, self.autorecovery, *self.bookies]
        return {
            getattr(part, "name", None) or part.root.name: part.log_tail()
            for part in parts
            if part is not None
        }

    def close(self) -> None:
        """End every part, whatever becomes of the others."""
        with ExitStack() as stack:
            for bookie in self.bookies:
                stack.callback(bookie.ensure_gone)
            if self.autorecovery is not None:
                stack.callback(self.autorecovery.kill)
            for client in self._clients.values():
                stack.callback(client.close)
