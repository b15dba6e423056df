"""A disk in memory: its content, the durable part of it, and the effect of a lost host on the rest.

- The bytes of a file are durable as of its last fdatasync. Of later appends any prefix stays; within it any sector of
  512 bytes may be zeros, in any order. Where durable bytes (filler) were overwritten, each sector has either the old or
  the new content. A truncate that was not synced may not have happened.
- A name is durable as of the last fsync_dir of its folder. Each creation, rename and removal since may survive or not,
  independently. Folders are durable at once.
- A failed sync makes nothing durable, and a later successful one does not make durable what the failed one left: the
  kernel counts those pages as clean. That part is gone with the host.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

SECTOR_BYTES = 512
LOG_SUFFIX = ".log"


class File:
    """An inode. ``data``: what a read returns; ``synced``: durable up to there, except ``undo``.

    ``end``: end of the appended bytes, without filler; ``ended``: their end at the last sync; ``before``: at the sync
    before that. ``confirmed``: synced when a later sync, of further appended bytes, began, and that one has ended: so
    the writer has durably recorded that they were. Bytes appended while a sync is in progress become durable with it,
    but the caller of the sync cannot know that.
    """

    __slots__ = (
        "appended_at",
        "before",
        "confirmed",
        "data",
        "end",
        "ended",
        "lost",
        "synced",
        "undo",
        "unheard",
    )

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.data = bytearray(data)
        self.synced = len(data)
        self.end = self.ended = self.before = self.confirmed = 0
        self.undo: list[tuple[int, bytes]] = []
        """Durable bytes that were overwritten or truncated since, oldest first."""
        self.lost: list[tuple[int, int, bytes]] = []
        """Ranges that a failed sync left behind, and the disk's content there: clean to the kernel, until they are
        written again."""
        self.appended_at = 0.0
        self.unheard = False
        """True if the next sync reports that earlier bytes could not be written."""

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        end = offset + len(data)
        if self.lost:
            self._touch(offset, end)
        if offset < self.synced:
            self.undo.append((offset, bytes(self.data[offset : min(end, self.synced)])))
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:end] = data

    def truncate(self, size: int) -> None:
        if self.lost:
            self._touch(size, len(self.data))
        if size < self.synced:
            self.undo.append((size, bytes(self.data[size : self.synced])))
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.seek(size)

    def seek(self, end: int) -> None:
        """Moves the end of the appended bytes back."""
        self.end = min(self.end, end)
        self.ended = min(self.ended, end)
        self.before = min(self.before, end)
        self.confirmed = min(self.confirmed, end)

    def sync(self) -> None:
        self.synced = len(self.data)
        if self.undo:
            self.undo.clear()
        if self.end > self.ended:
            self.confirmed, self.before, self.ended = self.before, self.ended, self.end

    def fail_sync(self) -> None:
        self.lost += [(offset, offset + len(old), old) for offset, old in self.undo]
        self.lost.append((self.synced, len(self.data), b""))
        self.sync()

    def release(self, start: int, end: int) -> None:
        """Drops these bytes from the page cache; bytes that could not be written are then lost."""
        for low, high, old in self.lost:
            if low < end and start < high:
                stop = min(high, len(self.data))
                self.data[low:stop] = old[: stop - low].ljust(max(0, stop - low), b"\0")
        self.lost = [each for each in self.lost if not (each[0] < end and start < each[1])]

    def _touch(self, start: int, end: int) -> None:
        """These bytes are written, or truncated: their sectors become dirty, and are written as a whole."""
        start -= start % SECTOR_BYTES
        end += -end % SECTOR_BYTES
        left = []
        for low, high, old in self.lost:
            if low < start:
                left.append((low, min(high, start), old[: start - low]))
            if end < high:
                left.append((max(low, end), high, old[max(0, end - low) :]))
        self.lost = left

    def fail_writeback(self) -> None:
        """Writeback of unsynced bytes has failed, and no sync has reported it yet."""
        if self.synced != len(self.data) or self.undo:
            self.fail_sync()
            self.unheard = True

    def copy(self) -> File:
        """A copy of the durable content."""
        made = File(self.durable() if self.undo or self.synced != len(self.data) else self.data)
        for start, end, old in self.lost:
            end = min(end, len(made.data))
            if start < end:
                made.data[start:end] = old[: end - start].ljust(end - start, b"\0")
        made.end = made.ended = min(self.ended, len(made.data))
        made.before, made.confirmed = min(self.before, made.end), min(self.confirmed, made.end)
        return made

    @property
    def is_clean(self) -> bool:
        return self.synced == len(self.data) and not self.undo and not self.lost

    def durable(self) -> bytearray:
        """The bytes that survive any fault, except those that a failed sync left behind."""
        image = self.data[: self.synced]
        for offset, old in reversed(self.undo):
            end = offset + len(old)
            if end > len(image):
                image.extend(bytes(end - len(image)))
            image[offset:end] = old
        return image

    def after_loss(self, rng: random.Random, *, bare: bool = False) -> File:
        """The file after the host was lost; ``bare``: only the synced bytes."""
        left = File(self.torn(rng, bare=bare))
        size = len(left.data)
        left.end = left.ended = min(self.ended, size)
        left.appended_at = self.appended_at
        left.before = min(self.before, size)
        left.confirmed = min(self.confirmed, size)
        return left

    def torn(self, rng: random.Random, *, bare: bool = False) -> bytes:
        """The bytes after the host was lost."""
        if self.is_clean:
            return bytes(self.data)
        data = self.durable() if bare else self._torn(rng)
        for start, end, old in self.lost:
            end = min(end, len(data))
            if start >= end:
                continue
            if end == len(data) and not old and rng.random() < 0.5:
                del data[start:]
            else:
                data[start:end] = old[: end - start].ljust(end - start, b"\0")
        return bytes(data)

    def _torn(self, rng: random.Random) -> bytearray:
        durable, current = self.durable(), self.data
        if len(current) < len(durable) and rng.random() < 0.5:
            return durable  # the truncate did not happen
        both = min(len(durable), len(current))
        end = rng.choice((both, rng.randint(both, len(current)), len(current)))
        data = current[:end]
        worst = rng.choice((0.0, rng.random()))
        for start in sorted(_changed(durable, current, both, end, self.undo)):
            stop = min(start + SECTOR_BYTES, end)
            draw = rng.random()
            if draw < 0.4 * worst:
                old = durable[start:stop]
                data[start : start + len(old)] = old
                data[start + len(old) : stop] = bytes(stop - start - len(old))
            elif draw < 0.6 * worst and start >= len(durable):
                data[start:stop] = bytes(stop - start)
        return data


def _changed(
    durable: bytearray, current: bytearray, both: int, end: int, undo: list[tuple[int, bytes]]
) -> Iterator[int]:
    """Sectors that changed since they were last durable."""
    seen = set()
    for offset, old in undo:
        for start in range(
            offset - offset % SECTOR_BYTES, min(offset + len(old), both), SECTOR_BYTES
        ):
            stop = min(start + SECTOR_BYTES, both)
            if durable[start:stop] != current[start:stop]:
                seen.add(start)
    seen.update(range(both - both % SECTOR_BYTES, end, SECTOR_BYTES))
    yield from seen


class Disk:
    """The files below one folder of a host, and its faults. ``files``: by path below it, present and durable state."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folders: set[str] = {str(root)}
        self.names: dict[str, dict[str, File]] = {str(root): {}}
        self.durable_names: dict[str, dict[str, File]] = {str(root): {}}
        self.mounted = True
        self.mounts = 1
        """Number of mounts."""
        self.sync_failed = False
        """True if a sync has failed, so that the kernel counts pages as written that are not."""
        self.is_failing = False
        """True if its device accepts no writes; the kernel serves from memory."""
        self.contents = object()
        """Changes when the disk is exchanged for another, or replaced by one."""
        self.fail_syncs = 0
        self.fail_appends = 0
        self.fail_reads = 0
        self.good_reads = 0
        """Number of reads that succeed before those that fail."""
        self.free_bytes: int | None = None
        self.on_failed_sync: Callable[[], None] | None = None
        """Called at the next sync that fails, once."""

    def lose_host(self, rng: random.Random, *, bare: bool = False) -> None:
        """Only the durable content stays, and a part of the rest, unless ``bare``."""
        for folder in sorted(self.names):
            now, before = self.names[folder], self.durable_names.setdefault(folder, {})
            after: dict[str, File] = {}
            for name in sorted({*now, *before}):
                is_now, was = now.get(name), before.get(name)
                survivor = is_now if is_now is was or (not bare and rng.random() < 0.5) else was
                if survivor is not None:
                    after[name] = (
                        survivor if survivor.is_clean else survivor.after_loss(rng, bare=bare)
                    )
            self.names[folder] = after
            self.durable_names[folder] = dict(after)
        self.fail_syncs = self.fail_appends = self.fail_reads = 0
        self.sync_failed = self.is_failing = False
        self.on_failed_sync = None

    def remount(self, rng: random.Random, *, bare: bool = False) -> None:
        """The device was away: mounted again, it has the content written to it before."""
        self.lose_host(rng, bare=bare)
        self.mounts += 1

    def remount_in_order(self) -> None:
        """Everything was written to it before."""
        self.sync_all()
        self.mounts += 1

    def reattach(self) -> None:
        """The device accepts writes again; failed writes are lost, and their pages are clean in memory."""
        self.is_failing = False
        for names in self.names.values():
            for file in names.values():
                file.fail_writeback()
        self.sync_failed = True

    def drop_caches(self) -> None:
        """Memory is short: clean pages are read from the device again, and files no longer report an earlier error; the
        file system does."""
        for names in self.names.values():
            for file in names.values():
                file.release(0, len(file.data))
                file.unheard = False

    def copy(self) -> Disk:
        """A snapshot of its device."""
        made = Disk(self.root)
        made.folders = set(self.folders)
        for folder in self.names:
            durable = self.durable_names.get(folder, {})
            made.names[folder] = {name: file.copy() for name, file in durable.items()}
            made.durable_names[folder] = dict(made.names[folder])
        return made

    def restore_from(self, other: Disk) -> None:
        """Replaces the disk by a copy."""
        self.folders, self.names, self.durable_names = (
            other.folders,
            other.names,
            other.durable_names,
        )
        self.mounts += 1

    def sync_all(self) -> bool:
        """Makes everything durable, except what a failed sync left behind; True if there is some, and this was not
        reported before."""
        had_failed, self.sync_failed = self.sync_failed, False
        if self.sync_fails():
            self.sync_failed = False  # reported
            for names in self.names.values():
                for file in names.values():
                    file.fail_sync()
            return True
        for folder, names in self.names.items():
            for file in names.values():
                file.sync()
            self.durable_names[folder] = dict(names)
        return had_failed

    def sync_fails(self) -> bool:
        """True if the sync in progress fails."""
        if self.is_failing:
            self.sync_failed = True
            return True
        if not self.fail_syncs:
            return False
        self.fail_syncs -= 1
        self.sync_failed = True
        callback, self.on_failed_sync = self.on_failed_sync, None
        if callback is not None:
            callback()
        return True

    def read_fails(self) -> bool:
        """True if the read in progress fails."""
        if not self.fail_reads:
            return False
        if self.good_reads:
            self.good_reads -= 1
            return False
        self.fail_reads -= 1
        return True

    def empty(self) -> None:
        """Replaces the disk by an empty one."""
        fresh = Disk(self.root)
        self.folders, self.names, self.durable_names = (
            fresh.folders,
            fresh.names,
            fresh.durable_names,
        )
        self.contents = object()

    def exchange(self, other: Disk) -> None:
        """Exchanges two disks."""
        mine, theirs = self._moved(other.root), other._moved(self.root)
        self.folders, self.names, self.durable_names = theirs
        other.folders, other.names, other.durable_names = mine
        self.contents, other.contents = object(), object()

    def _moved(
        self, root: Path
    ) -> tuple[set[str], dict[str, dict[str, File]], dict[str, dict[str, File]]]:
        def moved(folder: str) -> str:
            return str(root) + folder[len(str(self.root)) :]

        return (
            {moved(folder) for folder in self.folders},
            {moved(folder): names for folder, names in self.names.items()},
            {moved(folder): names for folder, names in self.durable_names.items()},
        )

    def flip(self, rng: random.Random, suffix: str) -> str | None:
        """Flips a bit of a file with this suffix; returns its name, None if there is none.

        In a log only a bit of the ``confirmed`` part: after the loss of a host damage to the rest cannot be
        distinguished from a sync that never was.
        """
        is_log = suffix == LOG_SUFFIX
        found = self._files(
            lambda name, file: (
                name.endswith(suffix) and bool(file.confirmed if is_log else file.data)
            )
        )
        if not found:
            return None
        folder, name = rng.choice((found[-1], rng.choice(found)))
        file = self.names[folder][name]
        end = file.confirmed if is_log else len(file.data)
        at = rng.randrange(rng.choice((0, max(0, end - 2000))), end)
        file.data[at] ^= 1 << rng.randrange(8)
        return f"{folder}/{name} byte {at}"

    def misdirect(self, rng: random.Random) -> str | None:
        """Writes some sectors of a log where others should be; returns their place, None if not enough are
        ``confirmed``."""
        found = self._files(
            lambda name, file: name.endswith(LOG_SUFFIX) and file.confirmed >= 2 * SECTOR_BYTES
        )
        if not found:
            return None
        folder, name = rng.choice(found)
        file = self.names[folder][name]
        size = rng.choice((1, 1, 4)) * SECTOR_BYTES
        last = max(0, file.confirmed - size) // SECTOR_BYTES
        source, target = (rng.randint(0, last) * SECTOR_BYTES for _ in range(2))
        end = min(target + size, file.confirmed)
        file.data[target:end] = file.data[source : source + end - target]
        return f"{folder}/{name} byte {target}"

    @property
    def has_unsynced_log(self) -> bool:
        """True if a log has unsynced appends."""
        return bool(self._files(lambda name, file: file.end > file.ended))

    def last_batch(self, now: float, idle_s: float) -> tuple[str, File] | None:
        """The log with the last append, and its path, if all of it is synced and nothing was appended for this time."""
        found = self._files(lambda name, file: name.endswith(LOG_SUFFIX) and file.ended > 0)
        files = [(self.names[folder][name], f"{folder}/{name}") for folder, name in found]
        if not files or max(file.appended_at for file, _ in files) > now - idle_s:
            return None
        file, path = max(files, key=lambda each: (each[0].appended_at, each[1]))
        return (path, file) if file.end == file.ended else None

    def _files(self, chosen: Callable[[str, File], bool]) -> list[tuple[str, str]]:
        """Folder and name of each chosen file, in order."""
        return [
            (folder, name)
            for folder in sorted(self.names)
            for name, file in sorted(self.names[folder].items())
            if chosen(name, file)
        ]
