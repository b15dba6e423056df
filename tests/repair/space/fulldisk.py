"""A disk that can be filled to its last byte, and many clients of a bookie that has it."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.harness.raw import EOK, HIGH_PRIORITY, RECOVERY, RawClient, add_frame, payload_of

CHUNK = 60_000
_WINDOW = 4


def content(ledger: int, entry: int) -> bytes:
    return b"%d %06d " % (ledger, entry) * (CHUNK // 9)


def fill_to_the_last_byte(path: Path) -> None:
    with (path / "other").open("ab", buffering=0) as file:
        for piece in (1 << 20, 4096, 1):
            try:
                while True:
                    os.write(file.fileno(), bytes(piece))
            except OSError:
                continue


class Load:
    """Threads that write, each to a ledger that stays and to one that goes, and threads that read what was taken.

    Every other writer may write where only repair may. ``wrong``: what a reader, or a connection, should not have met.
    """

    def __init__(self, port: int, stays: list[int], goes: list[int], readers: int) -> None:
        self._port = port
        self.acked: dict[int, list[int]] = {ledger: [] for ledger in (*stays, *goes)}
        self.refused = 0
        self.reads = [0] * readers
        self.wrong: list[str] = []
        self._stays, self._going = stays, goes
        self._stopped = threading.Event()
        work: list[tuple[Callable[..., None], tuple[object, ...]]]
        work = [(self._write, (stays[n], goes[n], n % 2)) for n in range(len(stays))]
        work += [(self._read, (number, random.Random(number))) for number in range(readers)]
        self._threads = [threading.Thread(target=self._guarded, args=each) for each in work]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(60)

    def let_go(self) -> None:
        """From now on nobody writes or reads the ledgers that go; to be followed by a wait for some reads of each."""
        self._going = []

    @property
    def stored(self) -> int:
        return sum(map(len, self.acked.values()))

    def _guarded(self, work: Callable[..., None], arguments: tuple[object, ...]) -> None:
        try:
            with RawClient(self._port, timeout=60) as client:
                work(client, *arguments)
        except (AssertionError, OSError) as error:
            self.wrong.append(f"{type(error).__name__}: {error}")

    def _write(self, client: RawClient, stays: int, goes: int, may_always: int) -> None:
        entry = 0
        while not self._stopped.is_set():
            ledger = goes if entry % 16 >= _WINDOW and goes in self._going else stays
            flags = RECOVERY | HIGH_PRIORITY if may_always else 0
            window = range(entry, entry + _WINDOW)
            for each in window:
                client.send(add_frame(ledger, each, content(ledger, each), flags))
            codes = [(answer.entry, answer.code) for answer in (client.answer() for _ in window)]
            self.acked[ledger] += [each for each, code in codes if code == EOK]
            refused = sum(code != EOK for _, code in codes)
            self.refused += refused
            if refused:
                time.sleep(0.02)  # as clients do
            entry += _WINDOW

    def _read(self, client: RawClient, number: int, rng: random.Random) -> None:
        while not self._stopped.is_set():
            ledger = rng.choice([*self._stays, *self._going])
            if not self.acked[ledger]:
                time.sleep(0.001)
                continue
            entry = rng.choice(self.acked[ledger])
            answer = client.read(ledger, entry)
            assert answer.code == EOK, f"ledger {ledger}, entry {entry}: code {answer.code}"
            assert payload_of(answer.body) == content(ledger, entry), "other bytes"
            self.reads[number] += 1
