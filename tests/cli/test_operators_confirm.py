"""What destroys something asks first, and is in the log of the bookie; what a terminal is shown of others' words."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from bkbox.base.ids import LedgerId
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.main import main
from bkbox.metadata import connect
from bkbox.wire.metadata.ledger import LedgerState
from tests.harness.cluster import NOBODY, create_ledgers, empty, ledger_of
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import bkbox
from tests.harness.waiting import wait_for

DESTROYING = {
    *("ledger delete", "ledger end", "log delete", "log truncate", "log forget"),
    *("cookie repair", "disk replace", "decommission", "repair"),
}
"""After which something is gone, or counts as gone, that was there."""


def command_of(words: str) -> click.Command:
    found: click.Command = main
    for word in words.split():
        assert isinstance(found, click.Group)
        each = found.get_command(click.Context(found), word)
        assert each is not None
        found = each
    return found


@pytest.mark.parametrize("words", sorted(DESTROYING))
def test_it_can_be_tried_and_asks_unless_told_not_to(words: str) -> None:
    options = {name: each for each in command_of(words).params for name in each.opts}
    assert "--dry-run" in options
    asked = options["--yes"]
    assert isinstance(asked, click.Option)
    assert asked.is_flag
    assert asked.default is not True
    assert asked.envvar is None, "nobody's environment says yes for him"


NASTY = "\x1b[2J\r\x85\x9b31m\nforged\u202e\u2066\u2069\u061c\u200f\u2028\u200b\ufeff ü \u05d0"


@pytest.fixture
def store(tmp_path: Path) -> str:
    uri = f"sqlite:{tmp_path}/metadata.db"
    bkbox("cluster", "init", "--metadata", uri)
    owner = NASTY.encode()
    nasty = (("application", owner), ("\x1b[2J\u202ekey", b"x"))
    closed = ledger_of(7, [NOBODY], state=LedgerState.CLOSED, last_entry=0)
    create_ledgers(uri, [replace(closed, custom=nasty)])
    return uri


@pytest.mark.parametrize("answer", ["", "n\n", "no\n", "\n", "8\n"])
@pytest.mark.parametrize("words", [["ledger", "delete", "7"]])
def test_without_a_yes_nothing_is_done(store: str, words: list[str], answer: str) -> None:
    done = CliRunner().invoke(main, [*words, "--metadata", store], input=answer)
    assert done.exit_code == ExitCode.FAILED

    async def still_there() -> None:
        async with await connect(store) as cluster:
            assert (await cluster.read_ledger(LedgerId(7))).value.ledger_id == 7

    asyncio.run(still_there())


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_a_terminal_obeys_nobody_who_wrote_metadata(store: str, output: str) -> None:
    told = CliRunner().invoke(main, ["top", "--metadata", store, "-o", output])
    assert told.exit_code == 0
    assert "forged" in told.output
    assert all(char.isprintable() or char == "\n" for char in told.output)
    if output != "table":
        means = json.loads(told.output) if output == "json" else yaml.safe_load(told.output)
        assert NASTY in _texts(means), "it means the same, escaped"


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for each in pair for text in _texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [str(value)]


def test_a_bookie_is_asked_and_says_so(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(disks=1).start()
    bkbox("bookie", "read-only", "on", "--config", str(bookie.config))
    wait_for(lambda: " asks: " in bookie.stderr, "the line of it")
    [line] = [each for each in bookie.stderr.splitlines() if " asks: " in each]
    assert f"user {os.geteuid()} (process " in line
    assert "read-only" in line
    bkbox("bookie", "read-only", "off", "--config", str(bookie.config))
    assert bookie.stop() == 0
    empty(bookie.disks[0])
    done = bkbox("cookie", "repair", "--config", str(bookie.config), check=False, input="n\n")
    assert done.returncode == ExitCode.FAILED
    assert list(bookie.disks[0].iterdir()) in ([], [bookie.disks[0] / "LOCK"])
