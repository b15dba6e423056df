"""The tree of commands: everything has help that a stranger can follow, and the help is true."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from bkbox.cli.lib.exit_codes import MEANINGS, ExitCode
from bkbox.cli.main import COMMANDS, main
from bkbox.config import find


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
        *("cluster init", "cluster info", "cluster list", "cluster status"),
        *("ledger create", "ledger list", "ledger show", "ledger read", "ledger write"),
        *("ledger recover", "ledger delete", "ledger explain", "ledger end"),
        *("index rebuild", "config validate", "config show", "placement explain"),
        *("config explain", "config diff", "config reload", "config import"),
        *("systemd install", "discover", "completion", "man"),
        *("bench bookie", "bench client", "bench sink"),
        *("job list", "job show", "job watch", "job cancel", "job pause", "job resume", "job rate"),
        *("disk list", "disk add", "disk drain", "disk replace", "disk remove"),
        *("disk read-only", "bookie read-only"),
        *("gc status", "gc run", "gc explain", "scrub status", "scrub run"),
        *("health", "maintenance on", "maintenance off", "maintenance status"),
        *("autorecovery run", "autorecovery status", "autorecovery list"),
        "autorecovery check",
        *("autorecovery enable", "autorecovery disable", "decommission"),
        *("tui", "doctor", "selftest", "debug bundle", "schema"),
        *("audit", "repair", "export", "import", "top"),
        *("takeover", "handback"),
        *("log write", "log read", "log tail", "log truncate", "log list", "log delete"),
        "log forget",
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
    for name in ("dump.bin", "orders.jsonl"):
        (tmp_path / name).touch()
    for words in examples(path):
        command: click.Command = main
        while isinstance(command, click.Group) and not words[0].startswith("-"):
            found = command.get_command(click.Context(command), words[0])
            assert found is not None, words
            command, words = found, words[1:]
        command.make_context("example", list(words))


LEAVES = {path: each for path, each in TREE.items() if not isinstance(each, click.Group)}

SILENT = {
    *("run", "autorecovery run", "tui"),  # a line when they are ready, or a screen
    *("completion", "schema"),  # a file
    *("demo", "bench sink"),  # what they do, as it comes
}
"""Commands that print nothing but data of their own kind."""

NOTHING_TO_TRY = {
    *("run", "autorecovery run", "tui"),  # they go on until they are told to stop
    *("demo", "sim", "model-check", "chaos check", "bench bookie", "bench client", "bench sink"),
    *(
        "cookie show",
        "cookie verify",
        "cluster info",
        "cluster list",
        "cluster status",
        "config validate",
        "config show",
    ),
    *("config explain", "config diff", "index", "job list", "job show", "job watch", "gc status"),
    *("gc explain", "scrub status", "health", "maintenance status", "autorecovery status"),
    *(
        "log write",
        "log read",
        "log tail",
        "log list",
        "autorecovery list",
        "ledger list",
        "ledger show",
        "ledger read",
        "ledger explain",
        "status",
    ),
    *("disk list", "discover", "completion", "schema", "placement explain", "doctor"),
    *("selftest",),  # which leaves nothing behind
    *("config import", "man"),  # which write one new file, or none
    *("audit", "export", "top"),  # the same, or a folder of files
}
"""Commands that change nothing, or only what they have made themselves."""

WATCHED = {
    *("status", "disk list", "job list", "gc status", "scrub status", "maintenance status"),
    *("autorecovery status", "cluster info", "cluster list", "cluster status"),
}


@pytest.mark.parametrize("path", LEAVES, ids=named)
def test_what_each_command_offers(path: tuple[str, ...]) -> None:
    command = LEAVES[path]
    offered = {word for parameter in command.params for word in parameter.opts}
    assert ("-o" in offered) == (named(path) not in SILENT)
    assert bool(getattr(command.callback, "shapes", ())) == (named(path) not in SILENT)
    assert ("--dry-run" in offered) == (named(path) not in NOTHING_TO_TRY)
    assert ("--watch" in offered) == (named(path) in WATCHED)


@pytest.mark.parametrize("path", [path for path in LEAVES if named(path) not in SILENT], ids=named)
def test_each_command_that_prints_documents_has_a_schema(path: tuple[str, ...]) -> None:
    schema = json.loads(CliRunner().invoke(main, ["schema", *path]).output)
    Draft202012Validator.check_schema(schema)
    assert schema["title"] == f"bkbox {named(path)}"


def test_a_schema_of_what_prints_none() -> None:
    for words in (["run"], ["nothing"], ["ledger"]):
        assert CliRunner().invoke(main, ["schema", *words]).exit_code == ExitCode.USAGE


def test_help_lists_every_command_and_exit_code() -> None:
    text = CliRunner().invoke(main, ["--help"]).output
    for name, (_, summary) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary.split()[0])}", text, re.MULTILINE)
    for code in ExitCode:
        assert f"  {code.value}  {MEANINGS[code]}" in text


MODULES_BESIDE_CLICK_MAX = 35
"""Those of bkbox, 11, what click takes for a help text, and a few: how long that is to wait depends on the machine, so
it is counted and not timed."""


def test_help_loads_click_and_little_else() -> None:
    program = (
        "import sys, click; before = set(sys.modules); from bkbox.cli.main import main;"
        "main(['--help'], standalone_mode=False);"
        "print(*sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    ours = {
        *("bkbox", "bkbox.native", "bkbox.errors"),
        *("bkbox.base", "bkbox.base.host", "bkbox.base.host.interpreter"),
        "bkbox.base.host.streams",
        *("bkbox.cli", "bkbox.cli.main", "bkbox.cli.lib", "bkbox.cli.lib.exit_codes"),
    }
    assert {name for name in loaded if name.partition(".")[0] == "bkbox"} == ours
    assert len(loaded) <= MODULES_BESIDE_CLICK_MAX, loaded


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["ledgers"])
    assert result.exit_code == ExitCode.USAGE
    assert "No such command 'ledgers'. Did you mean 'ledger'?" in result.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["stauts"], "'status'"),
        (["job", "lsit"], "'list'"),
        (["status", "--confg", "x"], "'--config'"),
        (["disk", "list", "--wach"], "'--watch'"),
    ],
)
def test_the_nearest_command_or_option_is_named(words: list[str], meant: str) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == ExitCode.USAGE
    assert f"Did you mean {meant}?" in result.stderr


def test_a_configuration_is_found_without_being_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "FOLDER", tmp_path)
    for words in (["status"], ["ledger", "list"], ["decommission", "127.0.0.1:1"]):
        result = CliRunner().invoke(main, words)
        assert result.exit_code == ExitCode.USAGE
        assert "one is named by --config FILE, BKBOX_CONFIG, or /etc/bkbox" in result.stderr
    text = f"listen = '127.0.0.1:1'\nmetadata = 'sqlite:{tmp_path}/none.db'\ndisks = ['a']\n"
    for name, environ in (("bookie.toml", {}), ("x", {"BKBOX_CONFIG": str(tmp_path / "x")})):
        (tmp_path / "bookie.toml").unlink(missing_ok=True)
        (tmp_path / name).write_text(text)
        shown = CliRunner().invoke(main, ["config", "show", "-o", "json"], env=environ)
        assert json.loads(shown.stdout)["listen"]["from"] == f"{tmp_path / name}:1"
        listed = CliRunner().invoke(main, ["ledger", "list"], env=environ)
        assert f"there is no metadata store {tmp_path}/none.db" in listed.stderr
