"""Commands that the pages name are there, with the options that the pages give them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bkbox.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "SECURITY.md"]
PAGES.remove(ROOT / "docs" / "cli.md")  # which is made from the commands

_IN_TEXT = re.compile(r"`bkbox ([^`]+)`")
_IN_BLOCK = re.compile(r"(?:^|[|&$(] ?|bkbox )bkbox (.+)")


def named(text: str) -> Iterator[tuple[int, list[str]]]:
    """Line, and the words behind bkbox."""
    in_block = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            in_block = not in_block
            continue
        found = _IN_BLOCK.findall(line) if in_block else _IN_TEXT.findall(line)
        for words in found:
            command = re.split(r"\s{2,}|[|>#&]|;\s", words)[0].rstrip("\\")
            yield number, command.replace("…", "").split()


def problem(words: list[str]) -> str:
    """What is wrong with a command line; alternatives (a|b) are left alone."""
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return f"there is no command {words[0]!r}"
        command, words = found, words[1:]
    known = {"--help", "--version"}
    for parameter in command.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    unknown = [w for w in words if w.startswith("--") and w.partition("=")[0] not in known]
    return f"{command.name} has no {', '.join(unknown)}" if unknown else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_is_one(page: Path) -> None:
    wrong = [
        f"{page.name}:{number}: bkbox {' '.join(words)}: {what}"
        for number, words in named(page.read_text())
        if words and (what := problem(words))
    ]
    assert wrong == []


def test_what_is_not_there_would_be_seen() -> None:
    text = "`bkbox disk list --colour`\n```\nsudo -u bkbox bkbox disks list   why\nls | bkbox log\n```\n"
    found = [words for _, words in named(text)]
    assert found == [["disk", "list", "--colour"], ["disks", "list"], ["log"]]
    assert [problem(words) for words in found] == [
        *("list has no --colour", "there is no command 'disks'", "")
    ]
    pages = "\n".join(page.read_text() for page in PAGES)
    seen = {words[0] for _, words in named(pages) if words}
    untold = set(COMMANDS) - seen
    assert untold <= {"demo", "schema"}, "a command that no page but the list of commands tells of"
