"""The small text files of the kernel under /proc and /sys.

All paths are absolute; ``root`` is prepended, so that a test can provide a host of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HostFiles:
    """``/proc``, ``/sys`` and ``/etc`` below ``root``. A missing or unreadable file is None: not every kernel, and
    hardly any container, has all of it.
    """

    root: Path = Path("/")

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def has(self, path: str) -> bool:
        """True if there is such a file; False also where a sandbox does not let this process look."""
        return os.path.exists(self.at(path))

    def text(self, path: str) -> str | None:
        """A file's text without the space around it."""
        try:
            return self.at(path).read_text("utf-8", "replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """A file that holds one whole number."""
        text = self.text(path)
        try:
            return None if text is None else int(text)
        except ValueError:
            return None

    def choice(self, path: str) -> str | None:
        """The bracketed one of ``always [madvise] never``."""
        text = self.text(path) or ""
        for word in text.split():
            if word.startswith("[") and word.endswith("]"):
                return word[1:-1]
        return None

    def lines(self, path: str) -> Iterator[str]:
        yield from (self.text(path) or "").splitlines()

    def names(self, path: str) -> list[str]:
        """The names in a folder; none if there is no folder."""
        try:
            return sorted(os.listdir(self.at(path)))
        except OSError:
            return []
