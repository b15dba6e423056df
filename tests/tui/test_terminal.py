"""The screen in a terminal, as over ssh or in tmux: it comes, bears a storm of SIGWINCH, and leaves all as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from bkbox_tui.recording import Recorder
from bkbox_tui.snapshot import Snapshot

from tests.harness.processes import BKBOX
from tests.harness.waiting import wait_for
from tests.tui.screens import in_limbo, limbo_job

ENTERS, LEAVES = b"\x1b[?1049h", b"\x1b[?1049l"
"""The terminal's second screen."""

TAKES_IT = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that the kernel sends its signals here
os.execv(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """What whoever sits before it sees, as bytes; ``resize`` has the kernel send SIGWINCH."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.seen = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # the other side is closed
            while data := os.read(self.master, 65_536):
                self.seen += data

    def resize(self, columns: int, lines: int) -> None:
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def shows(self, key: bytes, word: bytes) -> None:
        """Types the key until the screen has the word: a key that comes while the screen is too small is dropped."""

        def is_shown() -> bool:
            self.type(key)
            time.sleep(0.5)
            return word in self.seen

        wait_for(is_shown, f"{word!r} on the screen")

    def says(self, *words: bytes) -> None:
        wait_for(lambda: all(word in self.seen for word in words), f"{words} on the screen", 60)


@contextmanager
def shown(recording: Path, term: str) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    terminal = Terminal()
    terminal.resize(80, 24)
    before = termios.tcgetattr(terminal.slave)
    environment = {**os.environ, "TERM": term}
    for name in ("COLUMNS", "LINES", "TEXTUAL"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-c", TAKES_IT, *BKBOX, "tui", "--replay", str(recording)],
        stdin=terminal.slave,
        stdout=terminal.slave,
        stderr=terminal.slave,
        env=environment,
    )
    try:
        yield terminal, process
        assert termios.tcgetattr(terminal.slave) == before, "as it was"
    finally:
        process.kill()
        process.wait(20)
        os.close(terminal.slave)
        os.close(terminal.master)


@pytest.mark.parametrize("term", ["tmux-256color", "linux"])
def test_in_a_terminal(tmp_path: Path, term: str) -> None:
    recording = tmp_path / "night.jsonl.gz"
    with Recorder(recording) as recorder:
        for second in range(3):
            recorder.add(Snapshot(1_000 * second, in_limbo(), (limbo_job(),)))
    with shown(recording, term) as (terminal, process):
        terminal.says(ENTERS, b"LIMBO 17", b"Safe?")
        for number in range(100):
            terminal.resize(1 + number * 7 % 200, 1 + number * 5 % 60)
        terminal.resize(20, 5)
        terminal.says(b"too small")
        terminal.resize(80, 24)
        terminal.shows(b"4", b"checking ledger 7")
        assert process.poll() is None
        terminal.type(b"q")
        assert process.wait(30) == 0
        terminal.says(LEAVES)
    assert b"Traceback" not in terminal.seen
