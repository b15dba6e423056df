"""The wheel in an empty environment without a compiler: installed, initialised, run, stopped."""

from __future__ import annotations

import re
import signal
import subprocess
import zipfile
from pathlib import Path

import bkbox
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import COMMANDS, PROOF_COMMANDS
from tests.harness.processes import free_port


def run(bin_folder: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(bin_folder / "bkbox"), *words],
        env={"PATH": str(bin_folder)},
        capture_output=True,
        text=True,
        check=check,
    )


def test_a_bookie_from_the_wheel(bin_folder: Path, tmp_path: Path) -> None:
    assert run(bin_folder, "--version").stdout == f"bkbox, version {bkbox.__version__}\n"
    config = str(tmp_path / "b.toml")
    port = free_port()
    run(
        bin_folder,
        *("init", "--config", config, "--disk", str(tmp_path / "disk")),
        *("--metadata", f"sqlite:{tmp_path}/m.db", "--listen", f"127.0.0.1:{port}"),
    )
    with subprocess.Popen(
        [str(bin_folder / "bkbox"), "run", "--config", config],
        env={"PATH": str(bin_folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as bookie:
        try:
            assert bookie.stdout is not None
            assert bookie.stdout.readline() == f"ready 127.0.0.1:{port}\n"
            status = run(bin_folder, "status", "--config", config, "--timeout", "30").stdout
            assert re.search(r"^state +running$", status, re.MULTILINE)
            bookie.send_signal(signal.SIGTERM)
            assert bookie.wait() == 0
        finally:
            bookie.kill()


def test_the_proof_tools_are_not_in_the_wheel(wheel: Path, bin_folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folders = {name.partition("/")[0] for name in archive.namelist()}
        (top_level,) = (name for name in archive.namelist() if name.endswith("/top_level.txt"))
        packages = archive.read(top_level).decode().split()
    info = f"bkbox-{bkbox.__version__}.dist-info"
    assert folders == {"bkbox", "bkbox_tui", "pyspark_bookkeeper", info}
    assert packages == ["bkbox", "bkbox_tui", "pyspark_bookkeeper"]
    commands = run(bin_folder, "--help").stdout.partition("\nCommands:\n")[2].partition("\n\n")[0]
    listed = re.findall(r"^  ([a-z-]+)  ", commands, re.MULTILINE)
    assert PROOF_COMMANDS.keys() <= COMMANDS.keys(), "a checkout has them"
    assert listed == [name for name in COMMANDS if name not in PROOF_COMMANDS]
    for name in PROOF_COMMANDS:
        done = run(bin_folder, name, "--help", check=False)
        assert done.returncode == ExitCode.USAGE
        assert f"No such command '{name}'" in done.stderr


def test_a_package_of_the_same_name_brings_no_commands(bin_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "proof").mkdir()
    (tmp_path / "proof" / "__init__.py").write_text("raise AssertionError('imported')")
    done = subprocess.run(
        [str(bin_folder / "bkbox"), "--help"],
        env={"PATH": str(bin_folder), "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not re.search(r"^  sim ", done.stdout, re.MULTILINE)


def test_what_is_no_code_is_in_the_wheel_as_well(bin_folder: Path) -> None:
    program = (
        "from bkbox.cli.bookie import systemd; from pathlib import Path; import bkbox;"
        "print(*sorted(str(p.relative_to(systemd._UNITS)) for p in systemd._UNITS.rglob('*') if p.is_file()));"
        "print((Path(bkbox.__file__).parent / 'py.typed').exists())"
    )
    done = subprocess.run(
        [str(bin_folder / "python"), "-c", program],
        env={"PATH": str(bin_folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    units, typed = done.stdout.splitlines()
    assert units.split() == [
        "bkbox.service",
        "bkbox@.service",
        "sysusers.d/bkbox.conf",
        "tmpfiles.d/bkbox.conf",
    ]
    assert typed == "True"
