"""Names of files and folders whose bytes are no UTF-8, as arguments: served or refused in one line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.harness.processes import BKBOX, BookieProcess, free_port

NO_TEXT = os.fsdecode(b"a\xff")


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code, and what is said on standard error."""
    done = subprocess.run(
        [*BKBOX, *arguments], capture_output=True, cwd=folder, timeout=60, check=False
    )
    said = done.stderr.decode(errors="replace")
    assert "Traceback" not in said
    return done.returncode, said


@pytest.mark.parametrize(
    "given",
    [
        ("--disk", NO_TEXT),
        ("--metadata", f"sqlite:{NO_TEXT}"),
        ("--listen", f"{NO_TEXT}:3181"),
        ("--set", f"rack_map={NO_TEXT}"),
        ("--set", f"advertised_address={NO_TEXT}"),
    ],
)
def test_a_configuration_holds_text_only(tmp_path: Path, given: tuple[str, str]) -> None:
    option, value = given
    options = {"--disk": "d", "--metadata": "sqlite:x.db", "--listen": f"127.0.0.1:{free_port()}"}
    words = [word for each in ({**options, option: value}).items() for word in each]
    code, said = run(tmp_path, "init", "--config", "c.toml", *words)
    assert code != 0
    assert said.count("\n") == 1 or "Usage" in said, said
    assert os.listdir(tmp_path) == []


def test_files_with_such_names(tmp_path: Path) -> None:
    one = ("--metadata", f"sqlite:{NO_TEXT}.db")
    assert run(tmp_path, "cluster", "init", *one)[0] == 0
    assert run(tmp_path, "cluster", "info", *one)[0] == 0
    assert run(tmp_path, "audit", *one, "--jobs", "2", "-o", "out")[0] == 0
    for words in (("audit", *one, "-o"), ("export", *one, "-d"), ("import", *one)):
        code, said = run(tmp_path, *words, NO_TEXT)
        assert code == 2
        assert "not UTF-8" in said


def test_a_bookie_whose_configuration_has_such_a_name(tmp_path: Path) -> None:
    bookie = BookieProcess(tmp_path, f"sqlite:{tmp_path / 'x.db'}")
    bookie.config = bookie.root / f"{NO_TEXT}.toml"
    bookie.init().start()
    try:
        config = ("--config", str(bookie.config))
        bundle = ("debug", "bundle", "--to", f"{NO_TEXT}.tar.gz")
        for words in (("status",), ("doctor",), bundle, ("config", "diff"), ("job", "list")):
            assert run(tmp_path, *words, *config)[0] in (0, 1)
        code, said = run(tmp_path, "disk", "drain", NO_TEXT, "--dry-run", *config)
        assert code == 1
        assert "is no disk of this bookie" in said
    finally:
        assert bookie.stop() == 0
