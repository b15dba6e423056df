"""Clients of a bookie whose disks come and go: they write and read all the time, whatever dies, and know what they were
promised.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from tests.harness import raw3
from tests.harness.raw3 import ENOENTRY, ENOLEDGER, EOK, RawClient3

NO_SUCH = {ENOENTRY, ENOLEDGER}


@dataclass
class FailedOperation:
    """What is known of a ledger: the next entry, those acknowledged, whether a fence was acknowledged."""

    next_entry: int = 0
    acked: list[int] = field(default_factory=list)
    fenced: bool = False


class Load:
    """A thread that adds to ledgers and reads them, over connections that it makes anew when they break; it rests
    ``pause_s`` after each add."""

    def __init__(self, port: int, ledgers: int, *, pause_s: float = 0.0) -> None:
        self.port = port
        self._pause_s = pause_s
        self.ledgers = {ledger: FailedOperation() for ledger in range(1, ledgers + 1)}
        self.lies: list[str] = []
        self.adds = 0
        self.longest_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Load:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                client = RawClient3(self.port)
            except OSError:
                time.sleep(0.05)
                continue
            try:
                self._with(client)
            except (OSError, EOFError):
                time.sleep(0.02)
            finally:
                client.close()

    def _with(self, client: RawClient3) -> None:
        while not self._stop.is_set():
            for ledger, told in self.ledgers.items():
                began = time.monotonic()
                entry, told.next_entry = told.next_entry, told.next_entry + 1
                if self._add(client, ledger, entry, told):
                    told.acked.append(entry)
                    self.adds += 1
                if told.acked:
                    self._read(client, ledger, told.acked[(7 * entry) % len(told.acked)])
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                time.sleep(self._pause_s)

    def _add(self, client: RawClient3, ledger: int, entry: int, told: FailedOperation) -> bool:
        if told.fenced:
            status = client.add3(ledger, entry, payload_of(ledger, entry))
            if status == EOK:
                self.lies.append(f"ledger {ledger} was fenced and takes entry {entry}")
            return client.add3(ledger, entry, payload_of(ledger, entry), recovery=True) == EOK
        if ledger % 5 == 0 and entry == 40:
            told.fenced = client.fence3(ledger).status == EOK
        return client.add3(ledger, entry, payload_of(ledger, entry)) == EOK

    def _read(self, client: RawClient3, ledger: int, entry: int) -> None:
        answer = client.read3(ledger, entry)
        if answer.status in NO_SUCH:
            self.lies.append(f"ledger {ledger} entry {entry}: status {answer.status}")

    def check(self) -> int:
        """That everything is there; how many entries that are."""
        assert self.lies == []
        with RawClient3(self.port) as client:
            assert isinstance(client, RawClient3)
            return self._check(client)

    def _check(self, client: RawClient3) -> int:
        found = 0
        for ledger, told in self.ledgers.items():
            for entry in told.acked:
                answer = client.read3(ledger, entry)
                assert answer.status == EOK, f"ledger {ledger} entry {entry}: {answer.status}"
                assert answer.part is not None
                bodies = [value for value in answer.part.values() if isinstance(value, bytes)]
                assert any(payload_of(ledger, entry) in body for body in bodies)
                found += 1
            if told.fenced:
                assert client.add3(ledger, told.next_entry) == raw3.EFENCED
        return found


def payload_of(ledger: int, entry: int) -> bytes:
    return b"<%d/%d>" % (ledger, entry) * 20
