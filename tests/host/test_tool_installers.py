"""The manual's lines that install a wheel with pipx and with uv, each of these fresh from the package index."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import bkbox
from tests.harness.processes import free_port
from tests.host.buildcontext import ROOT
from tests.host.installed import NO_INDEX, install


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install("pipx", install("uv", tmp_path_factory.mktemp("installers")).parent)


LINES = re.findall(
    r"^((pipx|uv tool) install .*)$", (ROOT / "docs" / "manual.md").read_text(), re.MULTILINE
)[:2]


@pytest.mark.parametrize(("line", "installer"), LINES, ids=[installer for _, installer in LINES])
def test_a_tool_of_its_own(
    installers: Path, wheel: Path, tmp_path: Path, line: str, installer: str
) -> None:
    """Its command is there, runs, and needs nothing that is not installed with it; and it goes away again."""
    commands = tmp_path / "bin"
    env = {
        "HOME": str(tmp_path),
        "PATH": f"{installers}:/usr/bin:/bin",
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(commands),
        "UV_TOOL_DIR": str(tmp_path / "uv"),
        "UV_TOOL_BIN_DIR": str(commands),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_SYSTEM_CERTS": "true",  # as pip has them
    }

    def does(*words: str) -> subprocess.CompletedProcess[str]:
        return _run([str(installers / installer.split()[0]), *installer.split()[1:], *words], env)

    line = line.replace("python3.12", sys.executable)
    done = _run(["sh", "-euc", line], {**env, "wheel": str(wheel)})
    if done.returncode != 0 and NO_INDEX.search(done.stderr):
        pytest.skip("no package index can be reached, so what bkbox needs cannot be installed")
    assert done.returncode == 0, done.stderr

    def says(*words: str) -> str:
        done = _run([str(commands / "bkbox"), *words], {"HOME": str(tmp_path), "PATH": "/usr/bin"})
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert says("--version") == f"bkbox, version {bkbox.__version__}\n"
    assert "--replay" in says("tui", "--help")
    config, disk = tmp_path / "b.toml", str(tmp_path / "disk")
    metadata = f"sqlite:{tmp_path}/metadata.db"
    place = ("--config", str(config), "--disk", disk, "--listen", f"127.0.0.1:{free_port()}")
    says("init", *place, "--metadata", metadata)
    assert config.exists()
    assert does("uninstall", "bkbox").returncode == 0
    assert not (commands / "bkbox").exists()


def _run(words: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, check=False)
