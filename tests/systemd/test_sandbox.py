"""What a bookie asks of the kernel, against the system calls that its unit leaves it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BKBOX, bkbox
from tests.harness.raw import EOK, RawClient

FORBIDDEN = ("@privileged", "@resources")
"""As the units have it."""


def members(group: str) -> set[str]:
    """The calls of a group of systemd's, those of groups within included."""
    done = subprocess.run(
        ["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True
    )
    found: set[str] = set()
    for line in map(str.strip, done.stdout.splitlines()[1:]):
        if line and not line.startswith("#"):
            found |= members(line) if line.startswith("@") else {line}
    return found


def test_the_units_name_these_groups() -> None:
    for unit in ("bkbox.service", "bkbox@.service"):
        text = (Path(__file__).parents[2] / "systemd" / unit).read_text()
        assert "\nSystemCallFilter=@system-service\n" in text
        assert f"\nSystemCallFilter=~{' '.join(FORBIDDEN)}\n" in text


@pytest.mark.skipif(
    not (shutil.which("strace") and shutil.which("systemd-analyze")),
    reason="strace or systemd-analyze is not installed",
)
def test_a_bookie_makes_no_call_that_its_unit_forbids(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    bookie = make_bookie(announce="true")
    counted = tmp_path / "calls"
    with subprocess.Popen(
        [
            *("strace", "-f", "-qq", "-c", "-U", "name", "-o", str(counted)),
            *(*BKBOX, "run", "--config", str(bookie.config)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as traced:
        assert traced.stdout is not None
        assert traced.stdout.readline().startswith("ready ")
        (supervisor,) = psutil.Process(traced.pid).children()
        with RawClient(bookie.port) as client:
            assert client.add(1, 0, b"x" * 1000) == EOK
            assert client.read(1, 0).code == EOK
        bkbox("status", "--config", str(bookie.config), "--timeout", "60", timeout=90)
        supervisor.send_signal(signal.SIGTERM)
        assert traced.wait(60) == 0
    made = {words[0] for line in counted.read_text().splitlines()[2:-2] if (words := line.split())}
    assert {"fdatasync", "pwrite64", "memfd_create", "pidfd_open"} <= made
    if os.geteuid() == 0:
        made.discard("fchown")  # SQLite, for files that root makes for others
    allowed = members("@system-service")
    for group in FORBIDDEN:
        allowed -= members(group)
    # What everybody needs is in @default, which systemd always allows.
    assert made - allowed - members("@default") == set()
