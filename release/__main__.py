"""``python -m release [PART…]``: the files of a release, into ``dist/``, all parts or those named."""

from __future__ import annotations

import argparse
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from release import contents, debian, pythons, sources, wheels
from release.commands import DIST, ROOT, WORK, NotMadeError

PARTS = ("wheels", "aarch64", "debian")


def steps(tree: Path, parts: list[str]) -> Iterator[tuple[str, Callable[[], None]]]:
    """Each file's name for people, and what makes it."""
    pyproject = (tree / "pyproject.toml").read_text()
    versions = pythons.supported(pyproject)
    if "wheels" in parts:
        for version in versions:
            yield f"wheel for Python {version}", partial(wheels.make, tree, version)
        bill = f"bkbox-{tomllib.loads(pyproject)['project']['version']}.cdx.json"
        yield "bill of materials", lambda: contents.make_bill(wheels.tried(versions), DIST / bill)
    if "aarch64" in parts:
        for version in versions:
            yield f"wheel for Python {version} on aarch64", partial(wheels.cross, tree, version)
    if "debian" in parts:
        for suite in debian.SUITES:
            yield f"package for Debian {suite}", partial(debian.make, tree, suite)


def make(parts: list[str]) -> list[str]:
    """Fill ``dist/``; one line for each file that is not as it should be. Raises NotMadeError where none is made."""
    for folder in (WORK, DIST):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    missing = []
    print("source distribution", flush=True)
    for name, step in steps(sources.make(), parts):
        print(name, flush=True)
        try:
            step()
        except NotMadeError as error:
            missing.append(f"{name}: {error}")
    contents.make_sums(DIST)
    return missing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parts = parser.parse_args().parts
    if unknown := sorted(set(parts) - set(PARTS)):
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    try:
        missing = make(parts or list(PARTS))
    except NotMadeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in sorted(DIST.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path.relative_to(ROOT)}")
    for line in missing:
        print(f"not as it should be: {line}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
