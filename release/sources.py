"""The source distribution of the last commit, and the tree in it, from which everything else is made."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from release.commands import DIST, ROOT, WORK, NotMadeError, run


def make() -> Path:
    """Build it; the unpacked tree. Raises NotMadeError, also where the work tree is not the commit."""
    if _git("status", "--porcelain"):
        raise NotMadeError("the checkout has changes that no commit has: commit or remove them")
    checkout = WORK / "checkout"
    checkout.mkdir()
    archive = WORK / "checkout.tar"
    run("git", "archive", "--output", archive, "HEAD")
    run("tar", "--extract", "--file", archive, "--directory", checkout)
    made_at = _git("show", "--no-patch", "--format=%ct")
    run(
        *(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", DIST, checkout),
        environ={"SOURCE_DATE_EPOCH": made_at},
    )
    (sdist,) = DIST.glob("*.tar.gz")
    run("tar", "--extract", "--file", sdist, "--directory", WORK)
    tree = WORK / sdist.name.removesuffix(".tar.gz")
    shutil.rmtree(checkout)
    return tree


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotMadeError(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()
