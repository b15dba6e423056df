"""ext4 without a journal loses what was synced, and nothing that a bookie does can help it: so the operator is told."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.checks.test_power_cuts import findings
from tests.crash.device.blockdevice import BlockDevice, missing
from tests.crash.device.host import HostedBookie
from tests.harness.processes import bkbox
from tests.harness.zookeeper import ZooKeeper

pytestmark = pytest.mark.skipif(missing() != "", reason=f"no block device: {missing()}")


@pytest.mark.parametrize("store", ["sqlite", "zookeeper"])
def test_one_of_two_devices_has_no_journal(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    """It is named, and so is a metadata file on it; not the other device, nor a metadata store of another host."""
    with ExitStack() as stack:
        safe = stack.enter_context(BlockDevice(tmp_path / "safe"))
        bare = stack.enter_context(BlockDevice(tmp_path / "bare", journal=False))
        database = bare.path / "metadata.db"
        metadata = f"sqlite:{database}"
        if store == "zookeeper":
            zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
            metadata = zookeeper.uri()
            bkbox("cluster", "init", "--metadata", metadata)
        bookie = HostedBookie(tmp_path, metadata)
        stack.callback(bookie.ensure_gone)
        bookie.init_on("sync", [safe.path / "disk", bare.path / "disk"])
        bookie.start_again()
        (found,) = findings(bookie, "file system", str(bare.path / "disk"))
        assert found["verdict"] == "warn"
        assert "has no journal" in found["why"]
        (found,) = findings(bookie, "file system", str(safe.path / "disk"))
        assert found["verdict"] == "ok"
        assert len(findings(bookie, "file system", str(database))) == (store == "sqlite")
        assert bookie.stop() == 0
        words = ("selftest", "--config", str(bookie.config), "--seconds", "0.1", "-o", "json")
        done = bkbox(*words)
        warned = [bool(each["warnings"]) for each in json.loads(done.stdout)]
        assert warned == [False, True]
        assert ("warning: metadata store" in done.stderr) == (store == "sqlite")
