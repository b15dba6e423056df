"""What the project is made of: locks with hashes, and a check against a list of vulnerabilities.

``python -m tests.security.supply lock``
    make requirements/*.lock anew, one for each stage of the set-up; asks the index, by uv
``python -m tests.security.supply audit FILE``
    compare them with the vulnerabilities in FILE, a JSON list or a folder of them in OSV's format (https://osv.dev
    offers all of PyPI's as one archive); without a network
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[2]
STAGES = ("run", "dev", "spark", "docs", "release")
"""Each is installed beside those before it, or beside the first alone; see the Makefile."""

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Pinned(NamedTuple):
    """One locked package; SHA-256 of each of its files."""

    name: str
    version: str
    hashes: tuple[str, ...]


def locked(text: str) -> list[Pinned]:
    """The packages of a lock."""
    places = list(_PINNED.finditer(text))
    ends = [place.start() for place in places[1:]] + [len(text)]
    return [
        Pinned(
            canonicalize_name(place[1]),
            place[2],
            tuple(_HASH.findall(text[place.start() : end])),
        )
        for place, end in zip(places, ends, strict=True)
    ]


def lock_of(stage: str) -> Path:
    return ROOT / "requirements" / f"{stage}.lock"


def packages_of(stages: Iterable[str] = STAGES) -> list[Pinned]:
    """What the locks of these stages have, each package once."""
    return sorted({each for stage in stages for each in locked(lock_of(stage).read_text())})


def wanted(stage: str) -> list[Requirement]:
    """What pyproject.toml asks for, for a stage."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    texts = {
        "run": [*project["dependencies"], *document["build-system"]["requires"]],
        "dev": document["dependency-groups"]["dev"],
        "spark": project["optional-dependencies"]["spark"],
        "docs": document["dependency-groups"]["docs"],
        "release": document["dependency-groups"]["release"],
    }
    return [Requirement(text) for text in texts[stage]]


def not_locked(packages: Iterable[Pinned], requirements: Iterable[Requirement]) -> list[str]:
    """The requirements that the lock has not, or in another version."""
    versions = {each.name: each.version for each in packages}
    return [
        str(each)
        for each in requirements
        if not each.specifier.contains(versions.get(canonicalize_name(each.name), "0.dev0"), True)
    ]


def vulnerabilities(path: Path) -> Iterator[dict[str, Any]]:
    """Of a JSON list, or of each JSON file of a folder."""
    for file in sorted(path.rglob("*.json")) if path.is_dir() else [path]:
        found = json.loads(file.read_text())
        yield from found if isinstance(found, list) else [found]


def affected(packages: Iterable[Pinned], known: Iterable[dict[str, Any]]) -> list[str]:
    """One line for each vulnerability of a locked version."""
    versions: dict[str, set[str]] = {}
    for each in packages:
        versions.setdefault(each.name, set()).add(each.version)
    found = []
    for entry in known:
        if entry.get("withdrawn"):
            continue
        for part in entry.get("affected", ()):
            package = part.get("package", {})
            name = canonicalize_name(package.get("name", ""))
            if package.get("ecosystem") != "PyPI" or name not in versions:
                continue
            its = [version for version in sorted(versions[name]) if _is_affected(version, part)]
            if its:
                summary = entry.get("summary") or entry.get("details", "")[:100]
                found.append(f"{name} {' '.join(its)}: {entry['id']}: {summary}")
                break
    return found


def _is_affected(version: str, part: dict[str, Any]) -> bool:
    if version in part.get("versions", ()):
        return True
    return any(
        _in_range(Version(version), entry.get("events", ()))
        for entry in part.get("ranges", ())
        if entry.get("type") == "ECOSYSTEM"
    )


def _in_range(version: Version, events: Iterable[dict[str, str]]) -> bool:
    """Events come in order: from 'introduced' on, up to 'fixed' (without it) or 'last_affected' (with it)."""
    inside = False
    for event in events:
        ((kind, text),) = list(event.items())[:1]
        try:
            at = Version("0.dev0" if text == "0" else text)
        except InvalidVersion:
            continue
        if kind == "introduced":
            inside = inside or version >= at
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            inside = False
    return inside


def make_locks() -> None:
    """With uv, which resolves for all Pythons and platforms at once, and takes the hashes of all files from the index
    instead of the files. It asks the index that pip asks, and is not kept."""
    environ = dict(os.environ)
    for ours, theirs in (("UV_DEFAULT_INDEX", "PIP_INDEX_URL"), ("SSL_CERT_FILE", "PIP_CERT")):
        if theirs in environ:
            environ.setdefault(ours, environ[theirs])
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, "uv"]
        subprocess.run(pip, check=True)
        command = [f"{folder}/bin/uv", "pip", "compile", "-", "--quiet", "--universal"]
        command += ["--no-header", "--no-annotate", "--generate-hashes", "--python-version", "3.11"]
        command += ["--upgrade", "--cache-dir", f"{folder}/cache"]
        for stage in STAGES:  # all in one .venv: none changes what another has
            command += ["--output-file", str(lock_of(stage))]
            texts = "\n".join(str(each) for each in wanted(stage))
            subprocess.run(command, input=texts, text=True, cwd=ROOT, env=environ, check=True)
            command[-2:] = ["--constraints", str(lock_of(stage))]


def main() -> int:
    match sys.argv[1:]:
        case ["lock"]:
            make_locks()
        case ["audit", path]:
            found = affected(packages_of(), vulnerabilities(Path(path)))
            print("\n".join(found) or "none of the locked versions is in the list")
            return 1 if found else 0
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
