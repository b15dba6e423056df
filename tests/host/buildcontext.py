"""The build of the container without an engine: the files of a clean checkout that a builder sends into the build, and
where the COPY instructions of the Containerfile put them.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def instructions(text: str) -> list[tuple[str, str]]:
    """Names and arguments of the instructions of all stages, continued lines joined."""
    joined = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [
        (line.split(None, 1)[0], line.split(None, 1)[1]) for line in joined.splitlines() if line
    ]


def copies(text: str) -> Iterator[tuple[list[str], str]]:
    """Sources and destination of each COPY from the context."""
    for name, rest in instructions(text):
        words = shlex.split(rest)
        if name == "COPY" and not any(word.startswith("--from") for word in words):
            yield words[:-1], words[-1]


def checkout(root: Path = ROOT) -> list[str]:
    """The files of a clean checkout: those that git has, and new ones that it does not ignore."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True)
    paths = filter(None, done.stdout.split("\0"))
    return [path for path in paths if (root / path).is_file() or (root / path).is_symlink()]


def sent(paths: Iterable[str], ignore: str) -> list[str]:
    """The paths that an ignore file leaves in the context.

    The last pattern that matches a path or a folder above it decides; ``!`` takes a path back in.
    """
    patterns = [
        (line.startswith("!"), _pattern(line.removeprefix("!")))
        for line in map(str.strip, ignore.splitlines())
        if line and not line.startswith("#")
    ]
    return [path for path in paths if not _is_ignored(path, patterns)]


def _is_ignored(path: str, patterns: list[tuple[bool, re.Pattern[str]]]) -> bool:
    parts = path.split("/")
    places = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    matches = [back for back, pattern in patterns if any(map(pattern.fullmatch, places))]
    return bool(matches) and not matches[-1]


def _pattern(glob: str) -> re.Pattern[str]:
    """``*`` and ``?`` stay within a folder; ``**`` is any number of folders, none included."""
    glob = posixpath.normpath(glob.strip().lstrip("/"))
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile(
        "".join(
            words.get(token, token if token.startswith("[") else re.escape(token))
            for token in re.findall(r"\*\*/|\*\*|\[[^]]+\]|.", glob)
        )
    )


def copy_into(folder: Path) -> None:
    """Do what the COPY instructions do; ``folder`` is their working directory.

    Raises FileNotFoundError for a source that the context does not have, as a builder does.
    """
    context = sent(checkout(), (ROOT / ".containerignore").read_text())
    for sources, destination in copies((ROOT / "Containerfile").read_text()):
        for source in sources:
            if source in context:
                _copy(source, folder / destination / posixpath.basename(source))
                continue
            below = [path for path in context if path.startswith(f"{source}/")]
            if not below:
                raise FileNotFoundError(f"COPY {source}: not in the context of the build")
            for path in below:
                _copy(path, folder / destination / path.removeprefix(f"{source}/"))


def _copy(path: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(ROOT / path, target, follow_symlinks=False)
