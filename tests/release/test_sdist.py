"""The source distribution: it has all that packages are made from, and the wheel built from it lacks nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.host.buildcontext import ROOT, checkout, copies
from tests.host.installed import wheel_of, without_cython


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of a source distribution that was made in a clean checkout."""
    folder = tmp_path_factory.mktemp("sdist")
    source = folder / "checkout"
    for path in checkout():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, source / path, follow_symlinks=False)
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(folder)],
        cwd=source,
        env=without_cython(folder),
        capture_output=True,
        check=True,
    )
    (sdist,) = folder.glob("*.tar.gz")
    subprocess.run(["tar", "--extract", "--file", sdist, "--directory", folder], check=True)
    return folder / sdist.name.removesuffix(".tar.gz")


def test_it_has_what_packages_are_made_from(unpacked: Path) -> None:
    recipe = (ROOT / "Containerfile").read_text()
    copied = [source for sources, _ in copies(recipe) for source in sources]
    wanted = [
        path
        for path in checkout()
        if any(path == each or path.startswith(f"{each}/") for each in (*copied, "debian"))
        and not (ROOT / path).is_symlink()  # their files are there
    ]
    assert [path for path in wanted if not (unpacked / path).is_file()] == []
    assert not (unpacked / "tests").exists()
    assert not (unpacked / "proof").exists()


def test_its_wheel_is_the_same(unpacked: Path, wheel: Path, tmp_path: Path) -> None:
    def files(made: Path) -> set[str]:
        with zipfile.ZipFile(made) as archive:
            return set(archive.namelist())

    assert files(wheel_of(unpacked, tmp_path)) == files(wheel)
