"""What random tests start from, and how much of it they try."""

from __future__ import annotations

import os
import subprocess
import zlib
from pathlib import Path

EXAMPLES = 100 if "TESTS_LONG" in os.environ else 30
"""Inputs of a property that says nothing else."""


def seed_of_the_commit() -> int:
    """The value of ``SIM_SEED``, or drawn from the commit."""
    named = os.environ.get("SIM_SEED")
    if named is not None:
        return int(named)
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, check=False
    )
    return zlib.crc32(found.stdout)
