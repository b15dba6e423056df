"""A disk in memory: what is on it, what of that is durable, and what a lost host does with the rest.

- The bytes of a file are durable as of its last fdatasync. Of what was appended since any prefix stays; within it any
  sector of 512 bytes may be zeros, in any order. What was written over something durable (filler) is there, or what it
  replaced is, sector by sector. A truncate that was not synced may not have happened.
- A name is durable as of the last fsync_dir of its folder. Each creation, rename and removal since may be there or not,
  each for itself. Folders are durable at once.
- A failed sync makes nothing durable, and a later one that succeeds does not make durable what the failed one left: the
  pages are taken for clean. That part is gone with the host.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

SECTOR_BYTES = 512
LOG_SUFFIX = ".log"


class File:
    """An inode. ``data``: what a read sees; ``synced``: durable up to there, but for ``undo``.

    ``end``: of what was appended, filler apart; ``ended``: what of it was synced; ``confirmed``: what was synced when
    a later sync began, of more that was appended, which has ended: so who wrote it has said durably that it was.
    ``before``: what was synced by the sync before the last. What is appended while a sync is under way becomes durable
    with it, but who began it cannot know that.
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
        """What was durable and was overwritten or cut off since, oldest first."""
        self.lost: list[tuple[int, int, bytes]] = []
        """What a failed sync left behind, and what is on the disk there: clean to the system, until it is written
        again."""
        self.appended_at = 0.0
        self.unheard = False
        """Whether the next sync tells that something before it could not be written."""

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
        """What was appended ends here."""
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
        """What the system has in memory of these bytes goes; what it could not write is not on the disk."""
        for low, high, old in self.lost:
            if low < end and start < high:
                stop = min(high, len(self.data))
                self.data[low:stop] = old[: stop - low].ljust(max(0, stop - low), b"\0")
        self.lost = [each for each in self.lost if not (each[0] < end and start < each[1])]

    def _touch(self, start: int, end: int) -> None:
        """These bytes are written, or cut off: their sectors are as dirty as others, and are written whole."""
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
        """The system could not write what was not synced, and nobody has asked for it yet."""
        if self.synced != len(self.data) or self.undo:
            self.fail_sync()
            self.unheard = True

    def copy(self) -> File:
        """Of what is durable."""
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
        """The bytes that nothing can take away, but for what a failed sync left behind."""
        image = self.data[: self.synced]
        for offset, old in reversed(self.undo):
            end = offset + len(old)
            if end > len(image):
                image.extend(bytes(end - len(image)))
            image[offset:end] = old
        return image

    def after_loss(self, rng: random.Random, *, bare: bool = False) -> File:
        """What is there after the host was lost; ``bare``: nothing but what was synced."""
        left = File(self.torn(rng, bare=bare))
        size = len(left.data)
        left.end = left.ended = min(self.ended, size)
        left.appended_at = self.appended_at
        left.before = min(self.before, size)
        left.confirmed = min(self.confirmed, size)
        return left

    def torn(self, rng: random.Random, *, bare: bool = False) -> bytes:
        """What a lost host leaves."""
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
    """Sectors that are not as they were when they were last durable."""
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
    """What lies below one folder of a host, and how it fails. ``files``: by path below it, as is and as is durable."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folders: set[str] = {str(root)}
        self.names: dict[str, dict[str, File]] = {str(root): {}}
        self.durable_names: dict[str, dict[str, File]] = {str(root): {}}
        self.mounted = True
        self.mounts = 1
        """How often it was mounted."""
        self.left_behind = False
        """Whether a sync has failed, so that the system holds for written what is not."""
        self.is_failing = False
        """Its device takes nothing; the system goes on with what it has in memory."""
        self.contents = object()
        """Another one after it was exchanged for another disk, or replaced by one."""
        self.fail_syncs = 0
        self.fail_appends = 0
        self.fail_reads = 0
        self.good_reads = 0
        """So many succeed before those that fail."""
        self.room: int | None = None
        self.on_failed_sync: Callable[[], None] | None = None
        """What comes of the next sync that fails, once."""

    def lose_host(self, rng: random.Random, *, bare: bool = False) -> None:
        """Only what is durable stays, and a part of the rest, unless ``bare``."""
        for folder in sorted(self.names):
            now, before = self.names[folder], self.durable_names.setdefault(folder, {})
            after: dict[str, File] = {}
            for name in sorted({*now, *before}):
                is_now, was = now.get(name), before.get(name)
                kept = is_now if is_now is was or (not bare and rng.random() < 0.5) else was
                if kept is not None:
                    after[name] = kept if kept.is_clean else kept.after_loss(rng, bare=bare)
            self.names[folder] = after
            self.durable_names[folder] = dict(after)
        self.fail_syncs = self.fail_appends = self.fail_reads = 0
        self.left_behind = self.is_failing = False
        self.on_failed_sync = None

    def remount(self, rng: random.Random, *, bare: bool = False) -> None:
        """Its device was away: mounted anew, it has what had been written to it."""
        self.lose_host(rng, bare=bare)
        self.mounts += 1

    def remount_in_order(self) -> None:
        """All was written to it before."""
        self.sync_all()
        self.mounts += 1

    def come_back(self) -> None:
        """The device takes writes again; what it did not take is gone, and in memory it looks clean."""
        self.is_failing = False
        for names in self.names.values():
            for file in names.values():
                file.fail_writeback()
        self.left_behind = True

    def drop_caches(self) -> None:
        """Memory is short: what looks clean is read from the device again, and a file tells of no error any more; the
        file system does."""
        for names in self.names.values():
            for file in names.values():
                file.release(0, len(file.data))
                file.unheard = False

    def copy(self) -> Disk:
        """What a snapshot of its device has."""
        made = Disk(self.root)
        made.folders = set(self.folders)
        for folder in self.names:
            durable = self.durable_names.get(folder, {})
            made.names[folder] = {name: file.copy() for name, file in durable.items()}
            made.durable_names[folder] = dict(made.names[folder])
        return made

    def put_back(self, other: Disk) -> None:
        """A copy of it is in its place."""
        self.folders, self.names, self.durable_names = (
            other.folders,
            other.names,
            other.durable_names,
        )
        self.mounts += 1

    def sync_all(self) -> bool:
        """Everything is durable, but for what a failed sync left behind; whether something is, and this was not said
        before."""
        was_left, self.left_behind = self.left_behind, False
        if self.sync_fails():
            self.left_behind = False  # told
            for names in self.names.values():
                for file in names.values():
                    file.fail_sync()
            return True
        for folder, names in self.names.items():
            for file in names.values():
                file.sync()
            self.durable_names[folder] = dict(names)
        return was_left

    def sync_fails(self) -> bool:
        """Whether the sync that is asked for fails."""
        if self.is_failing:
            self.left_behind = True
            return True
        if not self.fail_syncs:
            return False
        self.fail_syncs -= 1
        self.left_behind = True
        told, self.on_failed_sync = self.on_failed_sync, None
        if told is not None:
            told()
        return True

    def read_fails(self) -> bool:
        """Whether the read that is asked for fails."""
        if not self.fail_reads:
            return False
        if self.good_reads:
            self.good_reads -= 1
            return False
        self.fail_reads -= 1
        return True

    def empty(self) -> None:
        """Another disk, with nothing on it, is in its place."""
        fresh = Disk(self.root)
        self.folders, self.names, self.durable_names = (
            fresh.folders,
            fresh.names,
            fresh.durable_names,
        )
        self.contents = object()

    def exchange(self, other: Disk) -> None:
        """Each is where the other was."""
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
        """Flip a bit of a file with this suffix; its name, None where there is none.

        Of a log only a bit of what is ``confirmed``: if the host is lost, nobody can tell damage to the rest from a
        sync that never was.
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
        """Some sectors of a log lie where others should; their place, None where there are not enough that are
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
        """Whether something was appended to a log that is not synced."""
        return bool(self._files(lambda name, file: file.end > file.ended))

    def last_batch(self, now: float, quiet_s: float) -> tuple[str, File] | None:
        """The log that was appended to last, and its path, if all of it is synced and nothing was appended for so
        long."""
        found = self._files(lambda name, file: name.endswith(LOG_SUFFIX) and file.ended > 0)
        files = [(self.names[folder][name], f"{folder}/{name}") for folder, name in found]
        if not files or max(file.appended_at for file, _ in files) > now - quiet_s:
            return None
        file, path = max(files, key=lambda each: (each[0].appended_at, each[1]))
        return (path, file) if file.end == file.ended else None

    def _files(self, chosen: Callable[[str, File], bool]) -> list[tuple[str, str]]:
        """Folder and name of each that is chosen, in order."""
        return [
            (folder, name)
            for folder in sorted(self.names)
            for name, file in sorted(self.names[folder].items())
            if chosen(name, file)
        ]
