"""The self-test of a disk: real writes on the disk of the tests; devices that lie are given to ``classify``."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from bkbox.base.host.blocks import Device
from bkbox.selftest import killed
from bkbox.selftest.flushes import classify
from bkbox.selftest.killed import BLOCK_BYTES, block
from bkbox.selftest.latency import summary
from tests.harness.processes import bkbox, end_once

SSD = Device("sdx", "/sys/block/sdx", True, False, 512, 4096, None)
SAFE = Device("sdx", "/sys/block/sdx", False, False, 512, 4096, None)
TURNING = Device("sdx", "/sys/block/sdx", True, True, 512, 4096, None)


@pytest.mark.parametrize(
    ("device", "syncs", "flushes", "p50_us", "verdict"),
    [
        (SSD, 1000, 1000, 400, "flushes"),
        (SSD, 1000, 2900, 400, "flushes"),  # others sync, too
        (SSD, 1000, 0, 400, "lies"),
        (SSD, 1000, 3, 400, "lies"),
        (SSD, 1000, 1000, 5, "suspicious"),
        (SSD, 1000, None, 400, "unknown"),
        (SAFE, 1000, 0, 5, "needs none"),
        (TURNING, 1000, 1000, 400, "suspicious"),
        (TURNING, 1000, 1000, 8_000, "flushes"),
        (None, 1000, None, 400, "unknown"),
    ],
)
def test_flushing(
    device: Device | None, syncs: int, flushes: int | None, p50_us: int, verdict: str
) -> None:
    found = classify(device, syncs, flushes, p50_us)
    assert found.verdict == verdict
    assert found.why


def test_percentiles_and_histogram() -> None:
    found = summary("append", 4096, [us * 1000 for us in (*[100] * 989, *[300] * 10, 9_000)])
    assert (found.p50_us, found.p99_us, found.p999_us, found.max_us) == (100, 300, 9_000, 9_000)
    assert [(each.below_us, each.count) for each in found.buckets] == [
        (128, 989),
        (512, 10),
        (16_384, 1),
    ]


def blocks(count: int) -> list[bytes]:
    body = bytes(BLOCK_BYTES - 12)
    return [block(number, body) for number in range(count)]


def test_what_a_killed_writer_left() -> None:
    whole = blocks(6)
    found = killed.survivors_of(b"".join(whole), 4, past_cache=True)
    assert (found.synced, found.lost, found.after, found.torn) == (4, 0, 2, 0)
    torn = [*whole[:5], whole[5][:1000]]
    assert killed.survivors_of(b"".join(torn), 4, past_cache=True).torn == 1
    zeroed = [*whole[:2], bytes(BLOCK_BYTES), *whole[3:]]
    assert killed.survivors_of(b"".join(zeroed), 4, past_cache=True).lost == 1
    assert killed.survivors_of(b"".join(whole[:3]), 4, past_cache=True).lost == 1
    half = whole[1][:512] + whole[2][512:]  # a sector of one block, the rest of another
    assert killed.survivors_of(whole[0] + half, 2, past_cache=True).lost == 1


def test_the_command(tmp_path: Path) -> None:
    words = ("selftest", "--folder", str(tmp_path), "--seconds", "1.5", "-o", "json")
    done = bkbox(*words, check=False)
    (report,) = json.loads(done.stdout)
    assert done.returncode == (0 if report["passed"] else 1)
    assert report["kept"]["synced"] > 0
    assert report["kept"]["lost"] == 0
    assert [each["way"] for each in report["latency"]] == ["overwrite", *["append"] * 3]
    assert all(
        sum(b["count"] for b in each["buckets"]) == each["count"] for each in report["latency"]
    )
    assert report["cannot_know"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGHUP])
def test_one_that_is_ended_leaves_nothing_on_the_disk(
    ended_by: signal.Signals, tmp_path: Path
) -> None:
    words = ("selftest", "--folder", str(tmp_path), "--seconds", "60")
    said = end_once(lambda: any(tmp_path.glob("*/*")), ended_by, *words)
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_bad_input(tmp_path: Path) -> None:
    missing = bkbox("selftest", "--folder", str(tmp_path / "none"), check=False)
    assert missing.returncode == 1
    assert "mount the disk first" in missing.stderr
    assert bkbox("selftest", "--seconds", "1", check=False).returncode == 2
