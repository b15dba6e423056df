"""Checks whether a sync reaches the device as a flush, as far as that can be told.

A device with a volatile cache keeps what was written only after a flush. The kernel counts the flushes that a device
has completed: as many syncs without as many flushes are a proof that a power cut would lose what was synced. The
opposite cannot be proved from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bkbox.base.host.blocks import Device

FlushVerdict = Literal["flushes", "needs none", "suspicious", "lies", "unknown"]

_SEEN_SHARE = 0.5
"""Of the syncs that have to show as flushes. Those of others add to the count, and none is ever taken off."""

_ROTATION_US = 2_000
"""A disk with 15,000 turns a minute needs half a turn, 2 ms, on the average until its head is where it is to write."""

_FLASH_US = 20
"""No flash cell is written faster; only a cache that survives a power cut (or one that does not) answers sooner."""

CANNOT_KNOW = (
    "whether the device has on its medium what it says it flushed: only cutting its power shows that",
    "how large a write the device does not tear in a power cut, beyond what it says of itself; the log does not rely "
    "on it, every record has a checksum",
)

CANNOT_KNOW_VIRTUAL = "whether the host of this virtual machine passes flushes on to its disks, or answers them itself"


@dataclass(frozen=True, slots=True)
class Flushing:
    """``syncs`` were made, and ``flushes`` counted meanwhile (None: the kernel does not count them)."""

    verdict: FlushVerdict
    why: str
    syncs: int
    flushes: int | None


def classify(device: Device | None, syncs: int, flushes: int | None, p50_us: int) -> Flushing:
    """``p50_us``: of writing 4 KiB into a part of a file that is there already, and syncing it."""

    def found(verdict: FlushVerdict, why: str) -> Flushing:
        return Flushing(verdict, why, syncs, flushes)

    if device is None:
        return found("unknown", "the folder is on no block device that the kernel names")
    if device.volatile_cache is False:
        return found(
            "needs none",
            f"{device.name} says that it has no volatile cache: what it has acknowledged it keeps",
        )
    if flushes is not None and device.volatile_cache and flushes < syncs * _SEEN_SHARE:
        return found(
            "lies",
            f"{syncs} syncs came to {flushes} flushes of {device.name}, which has a volatile cache: a power cut loses "
            "what was synced. Is it mounted without barriers?",
        )
    least_us = _ROTATION_US if device.rotational else _FLASH_US
    if p50_us < least_us:
        kind = "turning disk" if device.rotational else "flash"
        return found(
            "suspicious",
            f"half of the syncs took at most {p50_us} us, which no {kind} does: good if {device.name} has a cache "
            "that survives a power cut, and a loss of data if not",
        )
    if flushes is None or device.volatile_cache is None:
        return found("unknown", f"the kernel does not say whether {device.name} was flushed")
    return found("flushes", f"{syncs} syncs came to {flushes} flushes of {device.name}")
