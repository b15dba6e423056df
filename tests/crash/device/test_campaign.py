"""Power cuts under a loaded bookie, its metadata on the same device: the campaign in small.

``CRASH_POINTS`` and ``CRASH_SEED`` as in tests/crash/test_kill.py.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.crash.device.blockdevice import FILE_SYSTEMS, missing
from tests.crash.device.campaign import FAULTS, MODES, Setting, campaign
from tests.crash.device.combinations import combinations

POINTS = int(os.environ.get("CRASH_POINTS", "1"))
SEED = int(os.environ.get("CRASH_SEED", "1"))


def runnable(setting: Setting) -> Setting:
    if lacks := missing(setting.fs):
        pytest.skip(f"no block device: {lacks}")
    return setting


@pytest.mark.timeout(240 + 30 * POINTS)
@pytest.mark.parametrize("fs", FILE_SYSTEMS)
@pytest.mark.parametrize("mode", MODES)
def test_power_cuts(mode: str, fs: str) -> None:
    tally = campaign(runnable(Setting(mode, fs, SEED, POINTS)))
    assert not tally.broken, "\n".join(tally.violations)
    assert tally.cuts >= POINTS
    assert tally.acknowledged
    assert tally.unknown == 0 or mode == "write"


@pytest.mark.timeout(240 + 30 * POINTS)
@pytest.mark.parametrize(("mode", "fault"), combinations(MODES, FAULTS[1:]))
def test_a_device_that_fails_while_the_host_stays_up(mode: str, fault: str) -> None:
    tally = campaign(runnable(Setting(mode, "ext4", SEED, POINTS, fault=fault)))
    assert not tally.broken, "\n".join(tally.violations)


def test_a_bookie_that_does_not_sync_is_noticed() -> None:
    """The canary: its workers' fdatasync does nothing."""
    seeds = range(30)
    assert any(
        campaign(runnable(Setting("sync", "ext4", seed, 2, lie="sync"))).broken for seed in seeds
    )


def test_the_checker_shares_no_code_with_bkbox() -> None:
    program = (
        "import sys; import tests.crash.device.checker\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'bkbox'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
