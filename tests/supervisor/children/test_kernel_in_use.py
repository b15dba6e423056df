"""Each child says which kernel it runs: the status has it, and warns where they differ."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bkbox.native import kernel_in_use
from tests.harness.processes import BookieProcess
from tests.harness.waiting import wait_for

WORKERS_ARE_INTERPRETED = """
import os, sys
if "bkbox.worker" in sys.orig_argv:
    os.environ["BKBOX_KERNEL"] = "interpreted"
"""


def started(folder: Path, **environment: str) -> dict[str, object]:
    """The status of a bookie with this environment, when each of its processes has said what it runs."""
    bookie = BookieProcess(folder, f"sqlite:{folder / 'cluster.db'}").init(disks=1)
    try:
        bookie.start(environment=environment)  # the repair worker may come after the first response
        wait_for(lambda: all(kernels(bookie.status()).values()), "the kernel of each")
        return bookie.status()
    finally:
        assert bookie.stop() == 0


def kernels(status: dict[str, object]) -> dict[str, str]:
    processes = status["processes"]
    assert isinstance(processes, list)
    return {each["role"]: each["kernel"] for each in processes}


def test_all_run_the_same(tmp_path: Path) -> None:
    status = started(tmp_path)
    assert kernels(status) == dict.fromkeys(
        ("supervisor", "frontend", "worker", "repair"), kernel_in_use()
    )
    assert "different kernels" not in str(status["warnings"])


@pytest.mark.skipif(kernel_in_use() != "compiled", reason="there is no other kernel")
def test_a_worker_runs_another(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WORKERS_ARE_INTERPRETED)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    status = started(tmp_path, PYTHONPATH=path)
    found = kernels(status)
    assert found.pop("worker") == "interpreted"
    assert set(found.values()) == {"compiled"}
    assert "the processes run different kernels" in str(status["warnings"])
