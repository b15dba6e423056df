"""``<disk>/DIRTY``: the incarnations of the bookie that have used this disk since it was last known to hold
everything acknowledged.

Rules:

- It is written, file and name synced, before an incarnation does anything else to the disk, and removed last of all
  by a clean stop. No marker means: nothing can be missing.
- An incarnation never replaces the entries of earlier ones: it adds itself. Only when the boot's phase one (fence,
  limbo) is durable does ``commit`` leave the present incarnation alone in it; until then a second crash has to come
  to the same conclusion.
- A process that died lost nothing that write(2) took if the kernel is still the same (boot id) and has had the file
  system mounted ever since, on the same device (base/host/mounts.py). A difference in any of these, a recorded
  failure (a failed sync for one) or an unreadable marker mean that unsynced data may be lost: whatever cannot be
  excluded counts as a loss.
- An error while reading is not 'no marker': it is the worst marker.
"""

from __future__ import annotations

from pathlib import Path

from bkbox.base.text import error_text
from bkbox.base.values import as_dict, frozen_struct, replaced
from bkbox.errors import DiskError
from bkbox.storage.checksummed_document import read_document, write_document
from bkbox.storage.files import Files, unlink_durably
from bkbox.storage.log.records import AckAfter

MARKER_NAME = "DIRTY"


@frozen_struct
class Incarnation:
    """One incarnation of a bookie on a disk: the kernel's boot id, its acknowledgement mode, an id of its own, the
    identity of the mount, and whether it marked ledgers active before it acknowledged without a sync (versions before
    did not).
    """

    boot_id: str
    ack_after: AckAfter
    run_id: str
    mount: str = ""
    marks_active: bool = False


@frozen_struct
class Marker:
    """The incarnations since the last safe moment, oldest first; failures as text; whether the disk replaces a lost
    one.
    """

    runs: tuple[Incarnation, ...] = ()
    failures: tuple[str, ...] = ()
    replaced: bool = False

    def is_host_crash(self, boot_id: str, mount: str = "") -> bool:
        """True if unsynced data may be lost, seen from a boot with this id and a mount with this identity."""
        if self.failures or self.replaced or not self.runs:
            return True
        return any((run.boot_id, run.mount) != (boot_id, mount) for run in self.runs)

    @property
    def acked_unsynced(self) -> bool:
        """True if an incarnation acknowledged before it synced (or might have): a host crash then lost acknowledged
        entries.
        """
        return not self.runs or any(run.ack_after is AckAfter.WRITE for run in self.runs)


def read_marker(files: Files, disk: Path) -> Marker | None:
    """The marker; None = clean. Never raises for an unreadable marker: that one has a failure that says so."""
    path = disk / MARKER_NAME
    try:
        fields = read_document(files, path)
        if fields is None:
            return None
        runs = tuple(
            Incarnation(
                str(run["boot_id"]),
                AckAfter(run["ack_after"]),
                str(run["run_id"]),
                str(run.get("mount", "")),
                bool(run.get("marks_active", False)),
            )
            for run in fields["runs"]
        )
        failures = tuple(str(reason) for reason in fields["failures"])
        return Marker(runs, failures, bool(fields["replaced"]))
    except (DiskError, KeyError, ValueError, TypeError) as error:
        return Marker(failures=(f"the dirty marker cannot be read: {error_text(error)}",))


def begin_run(files: Files, disk: Path, run: Incarnation) -> Marker | None:
    """Add an incarnation durably and return the marker before it (None = clean).

    Of incarnations that differ in their ids alone the last one stays: a bookie that never gets as far as ``commit``
    may be restarted without end.
    """
    before = read_marker(files, disk)
    marker = before or Marker()
    others = {replaced(each, run_id=""): each for each in marker.runs}
    _write(files, disk, replaced(marker, runs=(*others.values(), run)))
    return before


def record_failure(files: Files, disk: Path, reason: str) -> None:
    """Record that the disk cannot be trusted to hold unsynced data, so that the next start treats it so."""
    marker = read_marker(files, disk) or Marker()
    _write(files, disk, replaced(marker, failures=(*marker.failures, reason)))


def carry_failure(files: Files, disk: Path, before: Marker | None, reason: str) -> Marker:
    """Record an earlier incarnation's failure that the marker does not have; returns it with the
    contents ``before``.
    """
    found = before or Marker()
    if reason in found.failures:
        return found
    marker = read_marker(files, disk) or Marker()
    kept = len(found.failures)
    failures = (*marker.failures[:kept], reason, *marker.failures[kept:])
    _write(files, disk, replaced(marker, failures=failures))
    return replaced(found, failures=(*found.failures, reason))


def mark_replaced(files: Files, disk: Path) -> None:
    """Record that this disk replaces a lost one: it has nothing that the lost one had acknowledged."""
    _write(files, disk, replaced(read_marker(files, disk) or Marker(), replaced=True))


def commit(files: Files, disk: Path, run: Incarnation, before: Marker | None) -> None:
    """Phase one is durable: drop the incarnations ``before`` this one; its own failures, if any, stay."""
    marker = read_marker(files, disk) or Marker()
    own = marker.failures[len(before.failures) if before else 0 :]
    committed = Marker(runs=(run,), failures=own)
    if committed != marker:
        _write(files, disk, committed)


def clear(files: Files, disk: Path, run: Incarnation) -> bool:
    """The last act of a clean stop, once the disk holds everything acknowledged, synced.

    False, and the marker stays, if it has more than this incarnation: unsettled earlier ones, a failure, a replaced
    disk.
    """
    if read_marker(files, disk) not in (None, Marker(runs=(run,))):
        return False
    unlink_durably(files, disk / MARKER_NAME)
    return True


def _write(files: Files, disk: Path, marker: Marker) -> None:
    runs = [as_dict(run) for run in marker.runs]
    write_document(files, disk / MARKER_NAME, {**as_dict(marker), "runs": runs})
