"""A bookie with several front-ends, and clients whose connections are known to be with one of them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import psutil

from tests.harness.processes import BookieProcess
from tests.harness.raw3 import EIO, ENOENTRY, ENOLEDGER, EOK, RawClient3

_TRIES = 400


def frontends(bookie: BookieProcess) -> list[int]:
    """Their process ids, in the order of their numbers; of those that run."""
    return [
        process["pid"]
        for process in bookie.status()["processes"]
        if process["role"] == "frontend" and process["running"]
    ]


def frontend_of(bookie: BookieProcess, client: RawClient3) -> int | None:
    """The process that has accepted this connection; None if none has."""
    address = client.sock.getsockname()[:2]
    for process in bookie.children("frontend"):
        with contextlib.suppress(psutil.Error):
            for connection in process.net_connections("tcp"):
                if connection.raddr and tuple(connection.raddr) == address:
                    return process.pid
    return None


def client_of(bookie: BookieProcess, pid: int) -> RawClient3:
    """A client whose connection that process has."""
    for _ in range(_TRIES):
        client = RawClient3(bookie.port)
        deadline = time.monotonic() + 20
        while (found := frontend_of(bookie, client)) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if found == pid:
            return client
        client.close()
    raise AssertionError(f"front-end {pid} accepts no connection")


def payload(ledger: int, entry: int) -> bytes:
    return b"<%d/%d>" % (ledger, entry) * 10


class Traffic:
    """A thread that adds to its ledgers over one connection, and reads over it what others have had acknowledged.

    ``failed``: why the connection ended, if it did; ``lies``: acknowledged entries that were denied.
    """

    def __init__(
        self, client: RawClient3, ledgers: range, acked: set[tuple[int, int]], first: int, step: int
    ) -> None:
        self.adds = 0
        self.failed = ""
        self.lies: list[str] = []
        self.refused = 0
        self._client = client
        self._ledgers = ledgers
        self._acked = acked
        self._first, self._step = first, step
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Traffic:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._client.close()

    def _run(self) -> None:
        entry = self._first
        try:
            while not self._stop.is_set():
                for ledger in self._ledgers:
                    status = self._client.add3(ledger, entry, payload(ledger, entry))
                    assert status in (EOK, EIO), status
                    if status == EOK:
                        self._acked.add((ledger, entry))
                        self.adds += 1
                    else:
                        self.refused += 1
                for ledger, known in list(self._acked)[-20:]:
                    answer = self._client.read3(ledger, known)
                    if answer.status in (ENOENTRY, ENOLEDGER):
                        self.lies.append(f"ledger {ledger} entry {known}: {answer.status}")
                entry += self._step
        except (OSError, EOFError) as error:
            self.failed = f"{type(error).__name__}: {error}"


def check_all(bookie: BookieProcess, acked: set[tuple[int, int]]) -> None:
    """That everything acknowledged can be read over every front-end."""
    for pid in frontends(bookie):
        with client_of(bookie, pid) as client:
            assert isinstance(client, RawClient3)
            for ledger, entry in acked:
                answer = client.read3(ledger, entry)
                assert answer.status == EOK, f"ledger {ledger} entry {entry}: {answer.status}"
                assert answer.part is not None
                bodies = [each for each in answer.part.values() if isinstance(each, bytes)]
                assert any(payload(ledger, entry) in body for body in bodies)


def ledgers_on_disks(bookie: BookieProcess) -> int:
    """The sum over the disks: a ledger on two disks counts twice."""
    return sum(disk["ledgers"] for disk in bookie.status()["disks"])


def together(*calls: Callable[[], None]) -> None:
    """Run calls at the same time; raises what one of them raises."""
    errors: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - of a thread, for the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
