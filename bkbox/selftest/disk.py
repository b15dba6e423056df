"""The whole self-test of one folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bkbox.base.host.blocks import Device, device_of, flushes
from bkbox.base.host.files import HostFiles
from bkbox.checks.host import file_system
from bkbox.checks.registry import FLUSHES, KILLED, Finding, worst
from bkbox.errors import HostError
from bkbox.selftest import killed
from bkbox.selftest.flushes import CANNOT_KNOW, CANNOT_KNOW_VIRTUAL, Flushing, classify
from bkbox.selftest.killed import SurvivingBlocks
from bkbox.selftest.latency import Latency, WritePattern, measure

FREE_MIN = 256 << 20
"""What has to be free: the test writes at most half of it at a time, and removes it."""

_MEASURES: tuple[tuple[WritePattern, int], ...] = (
    ("overwrite", 4 << 10),
    ("append", 4 << 10),
    ("append", 64 << 10),
    ("append", 1 << 20),
)

FOLDER_PREFIX = ".bkbox-selftest-"


@dataclass(frozen=True, slots=True)
class DiskReport:
    """``passed``: nothing was lost and nothing lies, as far as can be seen; ``cannot_know``: what cannot; ``warnings``:
    of the file system, each with what to do.
    """

    path: str
    device: Device | None
    latency: tuple[Latency, ...]
    flushing: Flushing
    kept: SurvivingBlocks
    passed: bool
    cannot_know: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def test(folder: Path, seconds: float, host: HostFiles, clock_ns: Callable[[], int]) -> DiskReport:
    """Write into a folder of its own below ``folder`` for about so long, and remove it. HostError."""
    free = shutil.disk_usage(folder).free if folder.is_dir() else None
    if free is None:
        raise HostError(f"{folder} is no folder: mount the disk first")
    if free < FREE_MIN:
        raise HostError(
            f"{folder} has {free >> 20} MiB free, and the self-test needs {FREE_MIN >> 20} MiB: free some, or test "
            "another folder of the same disk"
        )
    try:
        with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX, dir=folder) as own:
            return _test(Path(own), folder, seconds, host, clock_ns)
    except OSError as error:
        raise HostError(f"{folder}: {error.strerror or error}") from error


def _test(
    own: Path, folder: Path, seconds: float, host: HostFiles, clock_ns: Callable[[], int]
) -> DiskReport:
    device = device_of(host, folder)
    share = seconds / (len(_MEASURES) + 1)
    before = None if device is None else flushes(host, device)
    first = measure(own, *_MEASURES[0], share, clock_ns)
    after = None if device is None else flushes(host, device)
    counted = None if before is None or after is None else after - before
    latency = (first, *(measure(own, way, size, share, clock_ns) for way, size in _MEASURES[1:]))
    kept = killed.check(own, share)
    flushing = classify(device, first.count, counted, first.p50_us)
    return DiskReport(
        path=str(folder),
        device=device,
        latency=latency,
        flushing=flushing,
        kept=kept,
        passed=worst(findings(folder, flushing, kept)) != "fail",
        cannot_know=(*CANNOT_KNOW, *((CANNOT_KNOW_VIRTUAL,) if _is_virtual(host) else ())),
        warnings=warnings(host, folder),
    )


def findings(folder: Path, flushing: Flushing, kept: SurvivingBlocks) -> Iterator[Finding]:
    """The measurements as checks."""
    bad = {"lies": FLUSHES.fail, "suspicious": FLUSHES.warn}.get(flushing.verdict)
    yield (FLUSHES.ok if bad is None else bad)(flushing.why, str(folder))
    summary = f"{kept.synced} blocks synced, {kept.lost} of them lost"
    yield (KILLED.fail if kept.lost else KILLED.ok)(summary, str(folder))


def warnings(host: HostFiles, path: Path) -> tuple[str, ...]:
    """The problems of the file system under a folder or a file, each with a remedy."""
    found = [each for each in file_system(host, path) if each.verdict != "ok"]
    return tuple(f"{each.why}. What to do: {each.command}" for each in found)


def _is_virtual(host: HostFiles) -> bool:
    return any(
        line.startswith("flags") and " hypervisor" in line for line in host.lines("/proc/cpuinfo")
    )
