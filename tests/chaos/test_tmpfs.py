"""A small file system that gets full and has room again, seen by nobody else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import errno, sys
from pathlib import Path
from proof.chaos.tmpfs import Tmpfs, own_namespace

objection = own_namespace()
if objection is not None:
    print("skip:", objection)
    sys.exit()
path = Path(sys.argv[1])
tmpfs = Tmpfs(path)
tmpfs.open()
with (path / "file").open("wb", buffering=0) as file:
    file.write(bytes(1 << 16))
    tmpfs.squeeze(1 << 14)
    written = 0
    try:
        while True:
            written += file.write(bytes(4096))
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    assert 0 < written <= 1 << 15, written
    tmpfs.widen()
    assert file.write(bytes(1 << 16)) == 1 << 16
input()
"""


def test_a_tmpfs_gets_full_and_wide_again(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    inside = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(room)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said, errors = inside.communicate("\n", timeout=60)
    if said.startswith("skip:"):
        pytest.skip(said)
    assert inside.returncode == 0, errors
    assert list(room.iterdir()) == []
    assert str(room) not in Path("/proc/self/mounts").read_text()
