"""Test-only: a disk whose entry log cannot be synced, in every process of a bookie.

Python imports a module of this name at its start. Tests put this folder on PYTHONPATH; while the file named in
FAILING_SYNC exists, every fdatasync of a file in an entry log fails. bkbox itself has no trace of it.
"""

import errno
import os

_fdatasync = os.fdatasync


def _failing_fdatasync(fd):
    name = os.readlink(f"/proc/self/fd/{fd}")
    if "/entrylog/" in name and os.path.exists(os.environ["FAILING_SYNC"]):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    _fdatasync(fd)


if "FAILING_SYNC" in os.environ:
    os.fdatasync = _failing_fdatasync
