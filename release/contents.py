"""Makes the bill of materials and the checksums of a release."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from release.commands import ROOT, run

SUMS = "SHA256SUMS"


def make_bill(environment: Path, file: Path) -> None:
    """CycloneDX: all that is in an environment into which the wheel was installed. Raises NotMadeError."""
    run(
        *(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"),
        *("--pyproject", ROOT / "pyproject.toml", "--output-file", file),
        environment / "bin" / "python",
    )


def make_sums(folder: Path) -> None:
    """``SHA256SUMS``, for ``sha256sum --check``."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / SUMS).write_text("".join(lines))
