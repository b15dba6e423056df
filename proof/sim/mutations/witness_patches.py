"""Patches that switch off the safety measures against devices that fail and come back, and against older copies; see
mutation_patches.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bkbox.bookie.bookie import Bookie
from bkbox.protocol import boot
from bkbox.protocol.boot import Mark
from bkbox.storage.disk import dirty_marker, disk
from bkbox.storage.disk.checkpointing import Checkpoints
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.index.index import LedgerIndex
from bkbox.storage.index.stored_index import Stamp
from bkbox.storage.log.journal import Journal
from bkbox.storage.log.scan import SegmentFindings
from bkbox.storage.log.segment import Untouched
from bkbox.supervisor.boot import cookies, phase_one
from bkbox.supervisor.boot.witnessing import DiskWitnesses
from proof.sim.patching import Change, method
from proof.sim.world.supervisor import SimSupervisor


def boot_id_only() -> tuple[Change, ...]:
    """All mounts look the same."""
    return ((SimSupervisor, "mount_identity", lambda self, folder: "mount"),)


def failures_not_noted() -> tuple[Change, ...]:
    return ((DiskWitnesses, "fail", lambda self, disk, disks, reason: None),)


def kernel_not_asked() -> tuple[Change, ...]:
    return ((DiskStore, "_bring_to_device", lambda self: ""),)


def torn_for_granted() -> tuple[Change, ...]:
    """Bytes without a proof that they were durable count as torn, whatever they are."""

    def changed(real: Callable[..., Any]) -> Callable[..., Any]:
        def judge(self: Any, **named: Any) -> Any:
            for region in self.bad:
                self.bad[region] = Untouched(filler=True)
            return real(self, **named)

        return judge

    return method(SegmentFindings, "classify", changed)


class _NeverOlder(int):
    def __lt__(self, other: int) -> bool:
        return False


def older_index_taken() -> tuple[Change, ...]:
    real = LedgerIndex.stamp
    return ((LedgerIndex, "stamp", lambda self: Stamp(_NeverOlder(real(self).number), 0, 0)),)


def no_generations() -> tuple[Change, ...]:
    return (
        (cookies, "disk_rollback", lambda record, uuid, witness, checkpoint: ""),
        (DiskWitnesses, "seen", lambda self, disk: [0, 0, 0]),
    )


def no_tail_marks() -> tuple[Change, ...]:
    return ((disk, "read_tail", lambda files, path, *, written: None),)


def store_from_the_past() -> tuple[Change, ...]:
    return ((cookies, "store_rollback", lambda record, witnesses: ""),)


def unnamed_not_in_limbo() -> tuple[Change, ...]:
    real = boot.mark_for

    def mark_for(*values: Any, recorded: bool = False, **named: Any) -> Mark | None:
        return real(*values, **named)

    return ((phase_one, "mark_for", mark_for),)


def active_not_marked() -> tuple[Change, ...]:
    def changed(real: Callable[..., None]) -> Callable[..., None]:
        def init(self: Any, *values: Any, **named: Any) -> None:
            real(self, *values, **named)
            self._marks_active = False

        return init

    return method(Bookie, "__init__", changed)


def journal_not_replayed() -> tuple[Change, ...]:
    return ((Journal, "replay", lambda self, first, reapply, tail: []),)


def journal_removed_too_early() -> tuple[Change, ...]:
    """The beginning of a checkpoint removes the segments that its end makes superfluous."""

    def changed(real: Callable[..., Any]) -> Callable[..., Any]:
        def freeze(self: Any, index: LedgerIndex, journal: Journal | None) -> Any:
            checkpoint = real(self, index, journal)
            if journal is not None:
                for path in journal.retire(checkpoint.journal):
                    self._files.unlink(path)
            return checkpoint

        return freeze

    return method(Checkpoints, "freeze", changed)


def marker_left() -> tuple[Change, ...]:
    """An ordered stop leaves the dirty marker."""
    return ((dirty_marker, "clear", lambda files, path, run: True),)
