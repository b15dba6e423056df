"""Files that an operator names and that are read whole: configurations, passwords."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_BYTES_MAX = 1 << 20


def read_small(path: Path) -> bytes:
    """The contents. Raises OSError, EFBIG for more than 1 MiB: ``/dev/zero`` has no end."""
    with path.open("rb") as file:
        data = file.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data
