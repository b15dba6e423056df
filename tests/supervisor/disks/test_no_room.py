"""A drain that the other disks have no room for is refused before anything is changed, and says how much is missing."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw3 import EOK, RawClient3
from tests.harness.waiting import wait_for

SMALL_MIB = 24


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[BookieProcess]:
    """The second disk is a small one."""
    made = BookieProcess(tmp_path, f"sqlite:{tmp_path}/cluster.db")
    small = made.root / "disk2"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_MIB}m", "tmpfs", str(small)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs is not allowed here")
    made.init(disks=2, run_dir=str(tmp_path), disk_reserve_bytes=1 << 20, segment_bytes_max=4 << 20)
    made.start()
    yield made
    made.ensure_gone()
    subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_drain_with_no_room_left(bookie: BookieProcess) -> None:
    payload = b"x" * 100_000
    with RawClient3(bookie.port) as client:
        assert isinstance(client, RawClient3)
        for entry in range(300):
            assert client.add3(1, entry, payload) == EOK
    here = ["--config", str(bookie.config)]

    def views() -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(
            bkbox("disk", "list", *here, "-o", "json").stdout
        )
        return found

    wait_for(lambda: views()[0]["ledgers"], "the large disk to have the ledger")
    large = str(bookie.disks[0])
    plan = json.loads(bkbox("disk", "drain", large, "--dry-run", *here, "-o", "json").stdout)
    assert plan["bytes_at_most"] > 30_000_000 > plan["room_bytes"]
    refused = bkbox("disk", "drain", large, *here, check=False)
    assert refused.returncode not in (0, None)
    assert "no room: the entry log of" in refused.stderr
    assert "Add a disk (`bkbox disk add NEW_FOLDER --config " in refused.stderr
    assert "or let garbage go first (`bkbox gc run --config " in refused.stderr
    assert [each["state"] for each in views()] == ["in service", "in service"]
    assert not (bookie.disks[0] / "DRAINING").exists()
    with RawClient3(bookie.port) as client:
        assert isinstance(client, RawClient3)
        assert client.add3(1, 300, payload) == EOK
