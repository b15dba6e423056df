"""A checkout that `make` has installed: what its processes find, and what they load to find it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_packages_are_found_in_their_folders_and_without_a_finder(tmp_path: Path) -> None:
    program = (
        "import sys; print(*(name for name in sys.modules if 'editable' in name), sep='\\n')\n"
        "import bkbox, bkbox_tui, proof, pyspark_bookkeeper"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
