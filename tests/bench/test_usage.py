"""What processes use is read from the kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bkbox.bench import usage
from bkbox.bench.usage import (
    context_switches,
    device_written_bytes,
    drop_cache,
    stolen_s,
    tree,
    usage_of,
)

CHILD = """
import os, subprocess, sys
sum(range(3_000_000))
with open(sys.argv[1], "wb") as file:
    file.write(bytes(1 << 20))
    file.flush()
    os.fsync(file.fileno())
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
sys.stdin.read()
child.kill()
child.wait()
"""


def test_a_process_is_counted_with_its_children(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / "file")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert tree(process.pid) == [process.pid, child]
        assert context_switches([process.pid, child]) > context_switches([child]) > 0
        both = usage_of(process.pid)
        alone = usage_of(child)
        assert process.stdin is not None
        process.stdin.close()
    assert (both.processes, alone.processes) == (2, 1)
    assert both.cpu_s > alone.cpu_s
    assert both.rss_bytes > both.pss_bytes > alone.pss_bytes > 0
    assert both.rss_bytes > alone.rss_bytes
    assert usage_of(child).processes == 0
    assert context_switches([child]) == 0


def test_what_is_dropped_from_the_cache_is_still_in_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.joinpath("file").write_bytes(b"content")
    os.mkfifo(folder / "pipe")
    drop_cache(tmp_path)
    assert folder.joinpath("file").read_bytes() == b"content"


def test_what_the_host_keeps_is_the_steal_of_all_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = 3 * os.sysconf("SC_CLK_TCK")
    stat = f"cpu  11 12 13 14 15 16 17 {ticks} 19 20\ncpu0 1 2 3 4 5 6 7 {ticks} 9 10\n"
    tmp_path.joinpath("stat").write_text(stat)
    assert stolen_s() >= 0
    monkeypatch.setattr(usage, "_PROC", tmp_path)
    assert stolen_s() == 3.0


def test_devices_without_a_count_have_none() -> None:
    assert device_written_bytes(Path("/proc")) is None
