"""The child of killed.py: ``python -m bkbox.selftest.writer FILE``."""

from __future__ import annotations

import sys
from pathlib import Path

from bkbox.selftest.killed import write_until_killed

if __name__ == "__main__":
    write_until_killed(Path(sys.argv[1]))
