"""Three bookies on a real ZooKeeper: bkbox's on a block device, bkbox's on the host's own disk, and Apache's."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from tests.crash.device.blockdevice import BlockDevice
from tests.crash.device.host import HostedBookie, Promises
from tests.harness.processes import bkbox
from tests.harness.waiting import wait_for
from tests.harness.zookeeper import ZooKeeper
from tests.interop.javaclient import Driver, JavaClient
from tests.interop.javaparts import JavaBookie

REPAIR_TIMEOUT_S = 60.0


class MixedCluster:
    """``failing`` is on ``device``, and acknowledges after ``ack_after``; ``peer`` and ``java`` lose nothing. All end
    with the stack.
    """

    def __init__(
        self, stack: ExitStack, root: Path, zookeeper: ZooKeeper, ack_after: str = "write"
    ) -> None:
        self._stack = stack
        self._root = root
        self.zookeeper = zookeeper
        self.uri = zookeeper.uri(layout="hierarchical")
        self.device = stack.enter_context(BlockDevice(root / "device"))
        bkbox("cluster", "init", "--metadata", self.uri)
        self.java = JavaBookie(root, self.uri, name="java")
        stack.callback(self.java.ensure_gone)
        self.java.launch_bookie()
        self.failing = self._bookie("failing", ack_after, self.device.path / "disk")

    def _bookie(self, name: str, ack_after: str, disk: Path) -> HostedBookie:
        bookie = HostedBookie(self._root, self.uri, name=name)
        self._stack.callback(bookie.ensure_gone)
        bookie.init_on(ack_after, [disk], gc_confirm_s=0.2)
        bookie.start_again()
        return bookie

    def start(self, *, peer: bool = True) -> MixedCluster:
        """Returns when all serve. Without a ``peer`` there are two bookies."""
        if peer:
            self.peer = self._bookie("peer", "sync", self._root / "peer" / "disk")
            self._promised = [Promises(each) for each in (self.failing, self.peer, self.java)]
        self.java.wait_ready()
        return self

    def java_client(self) -> JavaClient:
        """Apache's client, in a JVM of its own."""
        driver = Driver(self._root)
        self._stack.callback(driver.kill)
        return JavaClient(driver.start(), self.uri, "v3")

    def write_everywhere(self, ledgers: Iterable[int], entries: range) -> None:
        """Have all three bookies acknowledge the same entries."""
        for ledger in ledgers:
            for each in self._promised:
                assert each.add(ledger, entries) == len(entries)

    @property
    def promises(self) -> Promises:
        """What ``failing`` acknowledged."""
        return self._promised[0]

    def wait_for_repair(self) -> None:
        """Until ``failing`` has no ledger in limbo."""
        wait_for(
            lambda: not self.failing.limbo, "the end of limbo", timeout=REPAIR_TIMEOUT_S, pause=0.2
        )


def start_again(bookie: HostedBookie | JavaBookie) -> None:
    """Start a bookie that is down, of either kind."""
    if isinstance(bookie, JavaBookie):
        bookie.start()
    else:
        bookie.start_again()
