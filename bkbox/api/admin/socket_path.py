"""The path of the admin socket, and how to reach a socket with a long path.

The kernel accepts at most 107 bytes as the path of a unix socket, and folders of disks are often
longer. Client and server therefore name the socket through a descriptor of its folder:
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
"""Layout of the kernel's credentials of the peer (SO_PEERCRED): process, user, group."""
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
    """A name of ``path`` short enough to bind or connect to, valid inside the block. Raises OSError if the folder does
    not exist."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
