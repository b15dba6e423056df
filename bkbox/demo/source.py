"""Input of the demo: files, split into entries, with a manifest to compare with afterwards.

One file after the other, in the order of their names; an entry has bytes of one file only. The
manifest (entries and SHA-256 of each file) is made while the bytes are handed out, so each file is
read once and is never in memory as a whole.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bkbox.errors import CallerError

ENTRY_BYTES_MAX = 16 << 10
_ENTRIES_TARGET = 64
"""Minimum number of entries: small input is split finer, so that there is something to interrupt."""

_COPY_BYTES = 1 << 20
_NOT_SOURCE = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "idlelib"})


@dataclass(frozen=True, slots=True)
class Stored:
    """One file in the ledger: entries ``first`` to ``last`` (``first - 1`` for an empty file)."""

    name: str
    sha256: str
    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Source:
    """The files to write: (name to show, path), and their size in all."""

    title: str
    files: tuple[tuple[str, Path], ...]
    size: int

    @property
    def entry_bytes(self) -> int:
        """Largest payload of an entry."""
        return max(1, min(ENTRY_BYTES_MAX, self.size // _ENTRIES_TARGET))

    def entries(self, manifest: list[Stored]) -> Iterator[bytes]:
        """The payloads in order. A file is in the manifest when its last entry was taken.

        Raises CallerError for a file that cannot be read.
        """
        entry = 0
        for name, path in self.files:
            digest = hashlib.sha256()
            first, size = entry, 0
            try:
                with path.open("rb") as file:
                    while payload := file.read(self.entry_bytes):
                        digest.update(payload)
                        size += len(payload)
                        entry += 1
                        yield payload
            except OSError as error:
                raise CallerError(f"cannot read {path}: {error.strerror}") from error
            manifest.append(Stored(name, digest.hexdigest(), size, first, entry - 1))


def standard_library() -> Source:
    """The source files of the running Python's standard library."""
    root = Path(sysconfig.get_paths()["stdlib"])
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return _source(
        f"the source of Python {version}'s standard library",
        [(str(path.relative_to(root)), path) for path in _walk(root) if path.suffix == ".py"],
    )


def from_path(path: Path) -> Source:
    """A file, or every regular file below a folder. Raises CallerError."""
    if path.is_dir():
        files = [(str(found.relative_to(path)), found) for found in _walk(path, skip=frozenset())]
        return _source(f"the files below {path}", files)
    if not path.exists():
        raise CallerError(f"there is no file or folder {path}")
    return _source(str(path), [(path.name, path)])


def from_stream(stream: BinaryIO, copy: Path) -> Source:
    """A stream, kept on disk as ``copy`` meanwhile: its middle is only known once it has ended."""
    try:
        with copy.open("wb") as file:
            while block := stream.read(_COPY_BYTES):
                file.write(block)
    except OSError as error:
        raise CallerError(f"cannot copy standard input to {copy}: {error.strerror}") from error
    return _source("standard input", [("-", copy)])


def _source(title: str, files: list[tuple[str, Path]]) -> Source:
    try:
        size = sum(path.stat().st_size for _, path in files)
        for _, path in files:
            path.open("rb").close()
    except OSError as error:
        raise CallerError(f"cannot read {error.filename}: {error.strerror}") from error
    if size == 0:
        raise CallerError(f"there is nothing to write in {title}: 0 bytes in {len(files)} files")
    return Source(title, tuple(files), size)


def _walk(root: Path, skip: frozenset[str] = _NOT_SOURCE) -> Iterator[Path]:
    """Regular files, symbolic links to files included, in the order of their names."""

    def refuse(error: OSError) -> None:
        raise CallerError(f"cannot read {error.filename}: {error.strerror}") from error

    for folder, subfolders, names in os.walk(root, onerror=refuse):
        subfolders[:] = sorted(name for name in subfolders if name not in skip)
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file():
                yield path
