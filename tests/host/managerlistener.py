"""A small service manager: listens where a bookie says how it does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.harness.waiting import wait_for


@dataclass(frozen=True)
class BookieAnswer:
    """One assignment, and when it came (monotonic seconds)."""

    name: str
    value: str
    at_s: float


class Listener:
    """``on_said`` is called in the moment in which something arrives."""

    def __init__(
        self, path: Path, on_said: Callable[[BookieAnswer], None] = lambda said: None
    ) -> None:
        self.said: list[BookieAnswer] = []
        self._path = path
        self._on_said = on_said
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind(str(path))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def environment(self, watchdog_s: float | None = None) -> dict[str, str]:
        found = {"NOTIFY_SOCKET": str(self._path)}
        if watchdog_s is not None:
            found["WATCHDOG_USEC"] = str(int(watchdog_s * 1_000_000))
        return found

    def _run(self) -> None:
        while data := self._sock.recv(65_536):
            for line in data.decode().splitlines():
                name, _, value = line.partition("=")
                said = BookieAnswer(name, value, time.monotonic())
                self.said.append(said)
                self._on_said(said)

    def times(self, name: str) -> list[float]:
        return [said.at_s for said in self.said if said.name == name]

    def statuses(self) -> list[str]:
        return [said.value for said in self.said if said.name == "STATUS"]

    def wait(
        self, name: str, text: str = "", since_s: float = 0.0, timeout: float = 30.0
    ) -> BookieAnswer:
        """The first of that name since then whose value has the text in it."""

        def found() -> BookieAnswer | None:
            wanted = (s for s in list(self.said) if s.name == name and s.at_s >= since_s)
            return next((s for s in wanted if text in s.value), None)

        said = wait_for(found, f"{name} with {text!r} in {self.said}", timeout)
        assert isinstance(said, BookieAnswer)
        return said

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", str(self._path))
        self._thread.join(10)
        self._sock.close()
