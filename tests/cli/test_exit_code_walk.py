"""Exit codes, command by command: the tree is walked with what goes wrong most often."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from tests.cli.test_command_tree import LEAVES, examples, named
from tests.harness.processes import BookieProcess

MAKES_IT = {"init"}
"""Commands for which a configuration is not there yet."""

LOOKS_ALL_THE_SAME = {"doctor": ExitCode.FAILED}
"""What is wrong with a configuration is what it tells of."""


@pytest.mark.parametrize("path", LEAVES, ids=named)
def test_an_unknown_option_is_a_usage_error(path: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [*path, "--no-such-option"])
    assert done.exit_code == ExitCode.USAGE
    assert "No such option" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("path", LEAVES, ids=named)
def test_a_configuration_that_is_not_there(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [words for words in examples(path) if "--config" in words]
    if not lines or named(path) in MAKES_IT:
        return  # it takes none, or has another way to say where
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        main, ["missing.toml" if w.endswith(".toml") else w for w in lines[0]]
    )
    assert done.exit_code == LOOKS_ALL_THE_SAME.get(named(path), ExitCode.USAGE), done.output
    assert "missing.toml" in done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)


NEEDS_A_BOOKIE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("status", "job list", "job watch", "health", "gc status", "gc run"), ()),
    **dict.fromkeys(("scrub run", "scrub status", "config reload"), ()),
    **dict.fromkeys(("job show", "job cancel", "job pause", "job resume", "gc explain"), ("1",)),
    "job rate": ("1", "1MiB"),
    **dict.fromkeys(("disk add", "disk drain", "disk remove", "disk read-only"), ("DISK",)),
    "disk replace": ("DISK", "DISK", "--yes"),
    "bookie read-only": ("on",),
    "ledger recover": ("7", "--job"),
}
"""And what else is on their command lines."""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> BookieProcess:
    """A bookie that was prepared and does not run."""
    root = tmp_path_factory.mktemp("stopped")
    return BookieProcess(root, f"sqlite:{root}/m.db").init(disks=1)


@pytest.mark.parametrize("command", NEEDS_A_BOOKIE)
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_bookie_that_does_not_run(stopped: BookieProcess, command: str, output: str) -> None:
    words = [w.replace("DISK", str(stopped.disks[0])) for w in NEEDS_A_BOOKIE[command]]
    line = [*command.split(), *words, "--config", str(stopped.config), "-o", output]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == ExitCode.NOT_RUNNING, done.output
    if command == "health":  # which says so in its document
        assert "no bookie is running" in done.stdout
    else:
        assert (done.stdout, done.stderr[:7]) == ("", "error: ")


NO_SUCH_LEDGER = {
    **dict.fromkeys(("show", "read", "explain", "recover"), ()),
    "delete": ("--yes",),
    "end": ("--accept-loss", "--yes"),
}


@pytest.mark.parametrize("command", NO_SUCH_LEDGER)
def test_a_ledger_that_is_not_there(stopped: BookieProcess, command: str) -> None:
    line = ["ledger", command, "7", *NO_SUCH_LEDGER[command], "--metadata", stopped.metadata]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == ExitCode.NOT_FOUND, done.output
    assert done.stderr.startswith("error: ")
