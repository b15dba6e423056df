"""The tree of commands: everything has help that a stranger can follow, and the help is true."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bkbox.cli.exits import MEANINGS, ExitCode
from bkbox.cli.main import COMMANDS, main


def walk(
    group: click.Group, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from walk(command, (*path, name))


TREE = dict(walk(main, ()))


def named(path: tuple[str, ...]) -> str:
    return " ".join(path)


def test_the_commands_that_scripts_rely_on() -> None:
    leaves = {named(path) for path, each in TREE.items() if not isinstance(each, click.Group)}
    assert leaves == {
        *("init", "run", "status", "demo"),
        *("cookie show", "cookie verify", "cookie repair"),
        *("cluster init", "cluster info", "cluster list"),
        *("ledger create", "ledger list", "ledger show", "ledger read", "ledger write"),
        *("ledger recover", "ledger delete", "ledger explain", "ledger end"),
        *("index rebuild", "config validate", "config show", "placement explain"),
        *("config explain", "config diff", "config reload", "config import"),
        *("systemd install", "discover", "completion", "man"),
        *("bench bookie", "bench client", "bench sink"),
        *("job list", "job show", "job watch", "job cancel", "job pause", "job resume", "job rate"),
        *("disk list", "disk add", "disk drain", "disk replace", "disk remove"),
        *("gc status", "gc run", "gc explain", "scrub status", "scrub run"),
        *("health", "maintenance on", "maintenance off", "maintenance status"),
        *("autorecovery run", "autorecovery status", "autorecovery list"),
        *("autorecovery enable", "autorecovery disable", "decommission"),
        "tui",
        "model-check",
        "chaos check",
        "sim",
    }


@pytest.mark.parametrize("path", TREE, ids=named)
def test_every_command_has_help_and_an_example(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0
    assert f"Usage: main {named(path)}" in result.output
    assert examples(path), "no example in the help"
    for parameter in TREE[path].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} has no help"


def examples(path: tuple[str, ...]) -> list[list[str]]:
    """The command lines below 'Example:' in the help, from the word bkbox on."""
    text = (TREE[path].help or "").partition("Example:")[2].replace("\\\n", " ")
    found = [line[line.index("bkbox ") :] for line in text.splitlines() if "bkbox " in line]
    return [shlex.split(line.partition(">")[0])[1:] for line in found]


@pytest.mark.parametrize("path", TREE, ids=named)
def test_every_example_is_a_command_line_that_parses(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dump.bin").touch()
    for words in examples(path):
        command: click.Command = main
        while isinstance(command, click.Group) and not words[0].startswith("-"):
            found = command.get_command(click.Context(command), words[0])
            assert found is not None, words
            command, words = found, words[1:]
        command.make_context("example", list(words))


def test_commands_that_print_data_offer_json() -> None:
    silent = {"init", "run", "demo", "cookie repair", "cluster init", "ledger delete", "bench sink"}
    silent |= {"model-check", "chaos check", "sim", "config import", "completion", "man"}
    silent |= {"disk add", "disk replace", "disk remove"}
    silent |= {"job watch", "maintenance on", "maintenance off", "tui"}
    silent |= {"autorecovery run", "autorecovery enable", "autorecovery disable"}
    for path, command in TREE.items():
        if isinstance(command, click.Group):
            continue
        has_output = any("-o" in parameter.opts for parameter in command.params)
        assert has_output == (named(path) not in silent), path


def test_help_lists_every_command_and_exit_code() -> None:
    text = CliRunner().invoke(main, ["--help"]).output
    for name, (_, summary) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary.split()[0])}", text, re.MULTILINE)
    for code in ExitCode:
        assert f"  {code.value}  {MEANINGS[code]}" in text


MODULES_FOR_HELP_MAX = 60
"""What click takes, 47, and a few: how long that is to wait depends on the machine, so it is counted and not timed."""


def test_help_loads_click_and_little_else() -> None:
    program = (
        "import sys; before = set(sys.modules); from bkbox.cli.main import main;"
        "main(['--help'], standalone_mode=False);"
        "print(*sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    ours = {"bkbox", "bkbox.cli", "bkbox.cli.main", "bkbox.cli.exits", "bkbox.errors"}
    assert {name for name in loaded if name.partition(".")[0] == "bkbox"} == ours
    assert len(loaded) <= MODULES_FOR_HELP_MAX, loaded


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["ledgers"])
    assert result.exit_code == ExitCode.USAGE
    assert "No such command 'ledgers'" in result.stderr
