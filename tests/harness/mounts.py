"""Real ext4 file systems on loop devices. Needs root; without it tests that need one are skipped, with the reason."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MakeMount = Callable[..., Path]


def run(*words: str | Path) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def _lacking() -> str:
    if os.geteuid() != 0:
        return "mounting wants root"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices"
    lacks = [name for name in ("mkfs.ext4", "tune2fs", "mount") if shutil.which(name) is None]
    return f"not installed: {', '.join(lacks)}" if lacks else ""


@pytest.fixture
def make_mount(tmp_path: Path) -> Iterator[MakeMount]:
    """make_mount(features, options, tune): the folder of a new ext4 on a loop device, of a file ``image`` beside it."""
    if lacking := _lacking():
        pytest.skip(lacking)
    mounted: list[Path] = []

    def make(
        features: str = "", options: str = "", tune: str = "", *, size: int = 16 << 20
    ) -> Path:
        image, point = tmp_path / "image", tmp_path / "mounted"
        with image.open("wb") as file:
            file.truncate(size)
        run("mkfs.ext4", "-q", *(["-O", features] if features else []), image)
        if tune:
            run("tune2fs", "-o", tune, image)
        point.mkdir()
        try:
            run("mount", "-o", f"loop{options and ','}{options}", image, point)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"cannot mount: {error.stderr.strip()}")
        mounted.append(point)
        return point

    yield make
    for point in mounted:
        run("umount", point)
