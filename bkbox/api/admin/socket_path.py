"""Where the admin server is found, and how a socket with a long path is reached.

The kernel takes at most 107 bytes as the path of a unix socket, and folders of disks are often
longer. Both sides therefore name the socket through a descriptor of its folder:
``/proc/self/fd/<n>/admin.sock``.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bkbox.config.schema import Config

SOCKET_NAME = "admin.sock"
CREDENTIALS = struct.Struct("3i")
"""What the kernel says of the other end (SO_PEERCRED): process, user, group."""
STATUS_URL = "/api/v1/status"
DISKS_URL = "/api/v1/disks"
JOBS_URL = "/api/v1/jobs"
SPACE_URL = "/api/v1/space"
READ_ONLY_URL = "/api/v1/read-only"
CONFIG_URL = "/api/v1/config"
EVENTS_URL = "/api/v1/events"
LIMBO_URL = "/api/v1/limbo"
BOOKIES_URL = "/api/v1/bookies"


def admin_socket_path(config: Config) -> Path:
    """``admin.sock`` in ``run_dir``, or on the first disk where no ``run_dir`` is set."""
    return (config.run_dir or config.disks[0]) / SOCKET_NAME


@contextmanager
def short_address(path: Path) -> Iterator[str]:
    """A name of ``path`` short enough to bind or connect to, good inside the block. OSError where
    the folder is not there.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
