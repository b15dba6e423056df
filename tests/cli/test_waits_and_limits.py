"""What the host does not give is said in a sentence: descriptors, a metadata store that does not answer, files."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.processes import BKBOX, BookieProcess, free_port
from tests.harness.waiting import wait_for


def limited(*arguments: object, descriptors: int = 0, file_bytes: int = 0) -> list[str]:
    """A command of bkbox under limits. They are set by a program of their own: gRPC, where this process has loaded it,
    opens descriptors in a fork of it."""
    limits = [
        *([f"--nofile={descriptors}"] if descriptors else []),
        *([f"--fsize={file_bytes}"] if file_bytes else []),
    ]
    return ["prlimit", *limits, "--", *BKBOX, *map(str, arguments)]


def run(
    *arguments: object, descriptors: int = 0, file_bytes: int = 0
) -> subprocess.CompletedProcess[str]:
    command = limited(*arguments, descriptors=descriptors, file_bytes=file_bytes)
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[BookieProcess]:
    made = BookieProcess(tmp_path, f"sqlite:{tmp_path}/metadata.db").init(disks=1)
    try:
        yield made
    finally:
        made.ensure_gone()


@pytest.mark.parametrize("descriptors", [10, 16, 40])
def test_a_command_without_descriptors(bookie: BookieProcess, descriptors: int) -> None:
    commands = (
        ("init", "--config", "b", "--disk", "d", "--metadata", "sqlite:m", "--listen", "h:1"),
        ("run", "--config", bookie.config),
        ("ledger", "list", "--metadata", bookie.metadata),
    )
    for command in commands:
        done = run(*command, descriptors=descriptors)
        assert done.returncode == 1
        assert f"error: bkbox needs 64 at least: this process may have {descriptors} files" in (
            done.stderr
        )
        assert "Traceback" not in done.stderr


def test_a_bookie_with_few_descriptors(bookie: BookieProcess) -> None:
    done = run("run", "--config", bookie.config, descriptors=64)
    assert done.returncode == 4
    assert "a bookie needs 512 descriptors at least: this process may have 64" in done.stderr

    process = subprocess.Popen(
        limited("run", "--config", bookie.config, descriptors=600),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        said = [each["text"] for each in bookie.status()["warnings"]]
        assert any("at most 344 clients are served at once" in text for text in said)
    finally:
        process.terminate()
        _out, err = process.communicate()
    assert "at most 344 clients are served at once" in err


@pytest.mark.parametrize(
    "command",
    [
        ("ledger", "list", "--metadata", "{uri}"),
        ("cluster", "list", "--metadata", "{uri}"),
        ("run", "--config", "{config}"),
        ("cookie", "verify", "--config", "{config}"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_metadata_store_that_does_not_answer_is_named(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    """While it is waited for, and not only at the end."""
    uri = f"zk://127.0.0.1:{free_port()}/ledgers"
    config = tmp_path / "bookie.toml"
    (tmp_path / "disk").mkdir()
    config.write_text(f'listen = "127.0.0.1:3181"\nmetadata = "{uri}"\ndisks = ["disk"]\n')
    arguments = [each.format(uri=uri, config=config) for each in command]
    with (tmp_path / "said").open("w+") as said:
        process = subprocess.Popen([*BKBOX, *arguments], stdout=subprocess.DEVNULL, stderr=said)
        try:
            wait_for(
                lambda: "waiting for ZooKeeper (127.0.0.1:" in Path(said.name).read_text(),
                "a word of what it waits for",
            )
            assert process.poll() is None
            assert " s at most" in Path(said.name).read_text()
        finally:
            process.kill()
            process.wait()


def test_the_screen_needs_a_terminal(bookie: BookieProcess) -> None:
    done = run("tui", "--config", bookie.config)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: the screen needs a terminal")
    assert "\x1b" not in done.stderr


def test_what_the_system_refuses_is_no_traceback(tmp_path: Path) -> None:
    """Of a file that is named by an option, whatever the command."""
    name = tmp_path / ("x" * 300)
    for command in (
        ("config", "import", name),
        ("init", "--config", name, "--disk", "d", "--metadata", "sqlite:m", "--listen", "h:1"),
        ("ledger", "list", "--metadata", f"sqlite:{name}"),
        ("config", "validate", "--config", name),
        ("completion", "bash", "--config", name),
        ("man", name),
    ):
        done = run(*command)
        assert done.returncode != 0, command
        assert "Traceback" not in done.stderr, done.stderr


def test_a_configuration_that_cannot_be_written_is_not_left_behind(tmp_path: Path) -> None:
    """As on a full disk: what is left would be in the way of the next try."""
    name = tmp_path / "bookie.toml"
    words = ("--disk", tmp_path / "d", "--metadata", f"sqlite:{tmp_path}/m", "--listen", "h:1")
    done = run("init", "--config", name, *words, file_bytes=100)
    assert done.returncode == 2
    assert done.stderr == f"error: cannot write {name}: File too large\n"
    assert list(tmp_path.iterdir()) == []
