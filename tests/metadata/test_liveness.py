"""Telling the living from the dead: this process, a child, a zombie, what cannot be seen."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from bkbox.metadata import liveness
from bkbox.metadata.liveness import Process, ProcessIdentity, life_of, this_process


def process_of(child: subprocess.Popen[bytes], here: Process) -> Process:
    started = liveness._start_time(child.pid)
    assert started is not None
    return replace(here, pid=child.pid, started=started)


def test_this_process_is_alive() -> None:
    here = this_process()
    assert here == this_process()
    assert life_of(here, here) is ProcessIdentity.ALIVE


def test_a_killed_child_is_dead_even_while_nobody_has_waited_for_it(tmp_path: Path) -> None:
    here = this_process()
    strange = tmp_path / "a) Z 1 (b"
    strange.symlink_to("/bin/sleep")
    with subprocess.Popen([strange, "600"]) as child:
        process = process_of(child, here)
        assert life_of(process, here) is ProcessIdentity.ALIVE
        child.kill()
        # Field 3 turns to Z when the kill is carried out, which waits for nobody.
        while life_of(process, here) is ProcessIdentity.ALIVE:
            pass
        assert Path(f"/proc/{child.pid}").exists(), "a zombie is still in the table"
        assert life_of(process, here) is ProcessIdentity.DEAD
        child.wait()
        assert life_of(process, here) is ProcessIdentity.DEAD


def test_a_pid_that_went_to_another_process_is_dead() -> None:
    here = this_process()
    assert life_of(replace(here, started=here.started - 1), here) is ProcessIdentity.DEAD


def test_nothing_survives_a_boot() -> None:
    here = this_process()
    assert life_of(replace(here, boot_id="another"), here) is ProcessIdentity.DEAD


def test_another_pid_namespace_cannot_be_seen() -> None:
    here = this_process()
    hidden = replace(here, pid_namespace=here.pid_namespace + 1, started=here.started - 1)
    assert life_of(hidden, here) is ProcessIdentity.UNKNOWN


def test_the_clock_counts_from_boot() -> None:
    uptime_ms = float(Path("/proc/uptime").read_text().split()[0]) * 1000
    assert liveness.boottime_ms() >= uptime_ms - 10
