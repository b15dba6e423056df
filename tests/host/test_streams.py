"""Standard streams that are closed or full, as of ``>&-`` and ``>/dev/full``, and files without an end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bkbox.api.admin.client import fetch_status
from bkbox.errors import BookieNotRunningError, BookieUnresponsiveError
from tests.harness.fixtures import MakeBookie
from tests.harness.waiting import wait_for

BKBOX = Path(sys.executable).with_name("bkbox")


def shell(line: str) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr, f"{line}: {done.stderr}"
    return done.returncode, done.stderr


def test_a_closed_standard_output(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    where = f"--metadata {bookie.metadata}"
    for words in (
        f"ledger list {where}",
        f"log list {where}",
        f"disk list --config {bookie.config}",
        "--help",
    ):
        assert shell(f"{BKBOX} {words} >&-") == shell(f"{BKBOX} {words} >/dev/null")
    assert shell(f"{BKBOX} ledger list {where} <&- >&- 2>&-") == (0, "")


def test_a_closed_standard_input_is_no_empty_one(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    words = f"ledger write -e 1 -w 1 -a 1 --metadata {bookie.metadata}"
    exit_code, told = shell(f"{BKBOX} {words} <&-")
    assert exit_code
    assert "cannot read standard input" in told


def test_a_full_standard_output() -> None:
    for words in ("--help", "status --help", "completion bash", "--version"):
        for buffered in ("-u PYTHONUNBUFFERED", "PYTHONUNBUFFERED=1"):
            ended = shell(f"env {buffered} {BKBOX} {words} >/dev/full")
            assert ended == (1, "error: No space left on device\n"), f"{buffered} {words}"


def test_a_bookie_without_streams(make_bookie: MakeBookie) -> None:
    """None of its files takes their numbers."""
    bookie = make_bookie()
    process = subprocess.Popen(
        ["bash", "-c", f"exec {BKBOX} run --config {bookie.config} <&- >&- 2>&-"]
    )

    def is_running() -> bool:
        try:
            return fetch_status(bookie.disks[0] / "admin.sock").state == "running"
        except (BookieNotRunningError, BookieUnresponsiveError):
            return False

    try:
        wait_for(is_running, "the bookie to run")
        children = psutil.Process(process.pid).children()
        assert len(children) >= 3
        for pid in (process.pid, *(child.pid for child in children)):
            streams = [os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)]
            assert streams == ["/dev/null"] * 3
    finally:
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    "words", ["status --config", "config import", "ledger read 1 --password-file"]
)
def test_a_file_without_an_end(make_bookie: MakeBookie, words: str) -> None:
    where = f"--metadata {make_bookie().metadata}" if "ledger" in words else ""
    exit_code, told = shell(f"ulimit -v 4000000; {BKBOX} {words} /dev/zero {where}")
    assert exit_code
    assert "/dev/zero" in told
    assert "File too large" in told


def test_a_configuration_with_a_byte_order_mark(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    bookie.config.write_bytes(b"\xef\xbb\xbf" + bookie.config.read_bytes().replace(b"\n", b"\r\n"))
    assert shell(f"{BKBOX} config validate --config {bookie.config}")[0] == 0
