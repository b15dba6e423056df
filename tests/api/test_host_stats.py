"""What is said of a process: its own figures, and a percentage that does not depend on who else asks."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from bkbox.api.admin.status import Process
from bkbox.api.status.host_stats import HostFigures


def compute(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_the_percentage_is_that_of_a_second_at_least() -> None:
    now_s = 100.0
    figures = HostFigures(clock=lambda: now_s)
    me = Process("supervisor", "b:1", os.getpid(), 0, True)
    first = figures.measured(me)
    assert (first.cpu_percent, first.pid) == (None, os.getpid())
    assert first.memory_bytes is not None
    assert first.memory_bytes > 1 << 20
    compute(0.2)
    now_s = 104.0
    second = figures.measured(me)
    assert first.cpu_s is not None
    assert second.cpu_s is not None
    assert second.cpu_s >= first.cpu_s + 0.1
    assert second.cpu_percent == 100 * (second.cpu_s - first.cpu_s) / 4
    compute(0.1)
    now_s = 104.5
    assert figures.measured(me).cpu_percent == second.cpu_percent, "somebody else asks as well"
    now_s = 105.0
    third = figures.measured(me)
    assert third.cpu_s is not None
    assert third.cpu_percent == 100 * (third.cpu_s - second.cpu_s)


def test_a_process_that_has_gone_has_no_figures() -> None:
    figures = HostFigures()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gone = Process("worker", "/data/a", ended.pid, 0, True)
    assert figures.measured(gone) == gone
