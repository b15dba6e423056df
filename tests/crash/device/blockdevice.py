"""A block device that can lose its cache, fail, vanish and come back, with ext4 or xfs on it.

    with BlockDevice(folder) as device:
        (device.path / "file").write_bytes(b"...")
        device.cut(seed)
        device.come_back()

The image is a FUSE file system of one file (server.c), a loop device is made of it, and the file
system is on that: all real, and the kernel needs no module but these. Wants root.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.crash.device import loop
from tests.crash.points.recorder import compiler
from tests.harness.waiting import wait_for

SOURCE = Path(__file__).with_name("server.c")
SECTOR_BYTES = {"ext4": 512, "xfs": 4_096}
"""What the device writes whole or not at all. XFS takes a metadata block of which one sector is newer than its log for
newer as a whole, so that it stands no finer tears.
"""
FILE_SYSTEMS = tuple(SECTOR_BYTES)
IMAGE_BYTES = 320 << 20
"""mkfs.xfs wants 300 MB. Only what was written takes memory."""

_CAP_SYS_ADMIN = 1 << 21


def missing(fs: str = "ext4") -> str:
    """What this machine lacks for a device with such a file system; "" if nothing."""
    if os.geteuid() != 0 or not _capabilities() & _CAP_SYS_ADMIN:
        return "only root may mount"
    if not Path("/dev/fuse").exists():
        return "there is no /dev/fuse"
    try:
        loop.free_number()
    except OSError as error:
        return f"there is no loop device: {error}"
    if fs not in Path("/proc/filesystems").read_text().split():
        return f"the kernel has no {fs}"
    tools = [f"mkfs.{fs}", "mount", "umount", *(["e2fsck"] if fs == "ext4" else [])]
    lacking = [tool for tool in tools if shutil.which(tool) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    return "" if compiler() else "there is no C compiler"


class BlockDevice:
    """See above. ``path`` is where the file system is mounted; ``folder`` holds mount points only.

    ``options`` are for mount. The device is made, with an empty file system, by entering the
    context, and gone when it is left, whatever its state.
    """

    def __init__(
        self,
        folder: Path,
        *,
        fs: str = "ext4",
        journal: bool = True,
        options: str = "rw",
        size: int = IMAGE_BYTES,
    ) -> None:
        """``size``: bytes of the device."""
        self.path = folder / "mounted"
        self.fs = fs
        self._size = size
        self._journal = journal
        self._options = options
        self._folder = folder
        self._image = folder / "image"
        self._loop: loop.Loop | None = None
        self._mounted = False
        self._lines = b""
        self._cut_seen = False

    def __enter__(self) -> BlockDevice:
        self.path.mkdir(parents=True)
        self._image.touch()
        command = [str(server()), str(self._folder), str(self._size), str(SECTOR_BYTES[self.fs])]
        # Shared: what is unmounted here is unmounted in each mount namespace that was made meanwhile.
        _run(["mount", "-n", "--bind", self._folder, self._folder])
        _run(["mount", "-n", "--make-shared", self._folder])
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(60)
        with theirs:
            self._server = subprocess.Popen(command, stdin=theirs)
        try:
            self._line()
            self.format()
            self.mount()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        try:
            self.detach(lazy=True)
        finally:
            self._socket.close()
            try:
                self._server.wait(20)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
            subprocess.run(["umount", "-n", "-l", self._folder], check=False, capture_output=True)

    # ---- the file system -------------------------------------------------------------------

    @property
    def loop(self) -> Path:
        """The loop device's path."""
        assert self._loop is not None
        return self._loop.path

    def format(self) -> None:
        """An empty file system in the place of what was there, flushed and not mounted."""
        self.detach()
        self.attach()
        if self.fs == "ext4":
            features = [] if self._journal else ["-O", "^has_journal"]
            extended = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"
            _run(["mkfs.ext4", "-q", "-F", "-b", "4096", "-E", extended, *features, self.loop])
        else:
            _run(["mkfs.xfs", "-q", "-f", "-K", self.loop])
        self.detach()

    def attach(self) -> None:
        self._loop = loop.Loop(self._image)

    def detach(self, *, lazy: bool = False) -> None:
        """Unmount. The loop device is gone, and with it what the kernel had cached of it; not if
        processes use the file system still, which is only allowed where this is ``lazy``.
        """
        if self._mounted:
            wait_for(lambda: self._unmounted(lazy), "the file system to be unused", pause=0.01)
            self._mounted = False
        if self._loop is not None:
            detached, self._loop = self._loop, None
            detached.detach()
            if not lazy:
                wait_for(lambda: not detached.attached, "the loop device to be gone", pause=0.001)

    def _unmounted(self, lazy: bool) -> bool:
        """Whether it could be unmounted. A process that was killed uses it until the kernel has let go of its files and
        of its mount namespace, a moment after its end.
        """
        try:
            _run(["umount", "-n", *(["-l"] if lazy else []), self.path])
        except subprocess.CalledProcessError as error:
            if "busy" not in error.stderr:
                raise
            return False
        return True

    def mount(self) -> None:
        """Check and mount, as a host does that starts. Raises CalledProcessError."""
        assert not self._mounted
        if self._loop is None:
            self.attach()
        if self.fs == "ext4":
            # 1: errors were corrected, as they have to be where there is no journal.
            _run(["e2fsck", "-p" if self._journal else "-y", self.loop], fine=(0, 1))
        _run(["mount", "-n", "-t", self.fs, "-o", self._options, self.loop, self.path])
        self._mounted = True

    def remount(self) -> None:
        """Unmount, detach, attach, mount, as an operator may do while the bookie is down."""
        self.detach()
        self.mount()

    def come_back(self, *, lazy: bool = False) -> None:
        """Repair the device, attach it anew, check it and mount it. ``lazy``: processes still use
        the old mount, and shall go on to; it fails for good.
        """
        if lazy:
            self.vanish()
            if self.fs == "xfs" and "nouuid" not in self._options:
                self._options += ",nouuid"  # it does not mount what it has mounted already
        self.detach(lazy=lazy)
        self.heal()
        self.mount()

    # ---- what happens to the device --------------------------------------------------------

    def cut(self, seed: int) -> None:
        """Cut the power: any part of what was not flushed is lost, and everything fails from now
        on; also for good, on the mount that there is.
        """
        self._do(f"cut {seed}")

    def arm(self, count: int, seed: int) -> None:
        """Cut the power as the ``count``-th write or flush from now on arrives."""
        self._cut_seen = False
        self._do(f"arm {count} {seed}")

    def fileno(self) -> int:
        """Readable when an armed cut has happened."""
        return self._socket.fileno()

    def was_cut(self) -> bool:
        """Whether the armed cut has happened."""
        self.counters()
        return self._cut_seen

    def eio(self) -> None:
        """Writes and flushes fail from now on."""
        self._do("eio")

    def vanish(self) -> None:
        """Everything fails from now on, for good on the mount that there is; the device keeps what
        it had, flushed or not.
        """
        self._do("vanish")

    def heal(self) -> None:
        """It works again; not for a mount that has seen it vanish."""
        self._do("heal")

    def lie(self, lying: bool = True) -> None:
        """Flushes succeed and do nothing, or work again."""
        self._do(f"lie {lying:d}")

    def snapshot(self) -> None:
        """Remember the device as it is now."""
        self._do("snapshot")

    def restore(self) -> None:
        """Put what ``snapshot`` remembered in the place of what is there, and mount that."""
        self.detach()
        self._do("restore")
        self.mount()

    def save(self, path: Path) -> None:
        """Write the device to a file, to be looked at."""
        self._do(f"save {path}")

    def counters(self) -> dict[str, int]:
        """Requests by kind; cuts; sectors in the cache at cuts, sectors and writes lost by them."""
        words = self._do("counters").split()
        return {name: int(number) for name, _, number in (word.partition("=") for word in words)}

    def _do(self, command: str) -> str:
        self._socket.sendall(command.encode() + b"\n")
        return self._line()

    def _line(self) -> str:
        while True:
            while b"\n" not in self._lines:
                data = self._socket.recv(4096)
                assert data, "the block device's server has ended"
                self._lines += data
            line, _, self._lines = self._lines.partition(b"\n")
            if line != b"cut":
                break
            self._cut_seen = True
        word, _, rest = line.decode().partition(" ")
        assert word == "ok", rest
        return rest


@functools.cache
def server() -> Path:
    """The server, compiled for this process."""
    found = compiler()
    assert found is not None, "there is no C compiler"
    folder = tempfile.mkdtemp(prefix="bkbox-device-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = Path(folder) / "server"
    _run([found, "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, SOURCE])
    return program


def _run(command: Sequence[str | Path], *, fine: Sequence[int] = (0,)) -> None:
    """Raises CalledProcessError, with what the command said."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode not in fine:
        error = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        error.add_note(f"{done.stdout}{done.stderr}")
        raise error


def _capabilities() -> int:
    (line,) = (
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("CapEff:")
    )
    return int(line.split()[1], 16)
