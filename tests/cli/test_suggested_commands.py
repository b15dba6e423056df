"""Every command line that bkbox or a page suggests is taken: no unknown command, option or argument."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import click
import pytest

from bkbox.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
SOURCES = [
    file
    for folder in ("bkbox", "tui", "spark")
    for file in (ROOT / folder).rglob("*.py")
    if re.search(r"\bbkbox [a-z]|_command\(", file.read_text())
]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "SECURITY.md"]
PAGES.remove(ROOT / "docs" / "cli.md")  # which is made from the commands

BOOKIE, CLUSTER, PLAIN = "bookie_command", "cluster_command", "plain_command"
OPTIONS = {BOOKIE: {"--config"}, CLUSTER: {"--config", "--metadata"}, PLAIN: set()}

MENTIONS = {
    "bkbox/audit/report.py": "a title",
    "bkbox/audit/run.py": "says what writes a folder",
    "bkbox/audit/tables.py": "says what writes a folder",
    "bkbox/cli/bookie/systemd.py": "a comment in a file that is written",
    "bkbox/cli/bookie/tui.py": "the help of an option",
    "bkbox/cli/data/audit.py": "the name of a Spark session",
    "bkbox/cli/data/export.py": "the name of a Spark session",
    "bkbox/cli/data/imports.py": "the name of a Spark session; says what writes a folder",
    "bkbox/cli/data/repair_plan.py": "the name of a Spark session; the help of an option",
    "bkbox/config/java_import.py": "what has the place of a key of Java's",
    "bkbox/config/java_unsupported.py": "what has the place of a key of Java's",
    "bkbox/config/load.py": "a comment in a file that is written",
    "bkbox/config/schema.py": "the meaning of a key",
    "bkbox/demo/fenced.py": "what the demo itself runs",
    "bkbox/demo/lost_disk.py": "what the demo itself runs",
    "tui/bkbox_tui/recording.py": "says what writes a file",
}
"""Files with texts that name a command and do not suggest to run it."""

SAMPLES = ("1", "1MiB/s", "1:1", "NAME", "on")
"""What may stand where a value is filled in, or has to be."""
_TO_REPLACE = re.compile(r"[A-Z][A-Z_]+|N")


def wrong_with(words: list[str]) -> str:
    """What its command refuses in a command line, "" for nothing."""
    command: click.Command = main
    path = []
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return f"there is no command {words[0]!r}"
        command, words = found, words[1:]
        path.append(command.name)
    try:
        command.make_context("bkbox", list(words))
    except click.exceptions.Exit:  # of --help
        pass
    except click.exceptions.NoArgsIsHelpError:
        return "it wants arguments"
    except click.UsageError as error:
        return error.format_message()
    return ""


def is_wrong(words: list[str | None]) -> str:
    """The same, with any of the samples in the place of each None."""
    first = ""
    for samples in product(SAMPLES, repeat=words.count(None)):
        values = iter(samples)
        found = wrong_with([next(values) if word is None else word for word in words])
        if not found:
            return ""
        first = first or found
    return first


# ---- the source --------------------------------------------------------------------------------------


def suggested(file: Path) -> Iterator[tuple[int, str, list[str | None]]]:
    """Line, function and words of each call of the functions that make command lines; None: a value."""
    for node in ast.walk(_tree(file)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in OPTIONS
        ):
            words = [
                None if each is None or _TO_REPLACE.fullmatch(each) else each
                for each in map(_literal, node.args)
            ]
            yield node.lineno, node.func.id, words


def _literal(node: ast.expr) -> str | None:
    """The text of a literal; None for anything else."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text else None  # type: ignore[attr-defined]


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def options_of(words: list[str | None]) -> set[str]:
    command: click.Command = main
    for word in words:
        if not isinstance(command, click.Group) or word is None:
            break
        found = command.get_command(click.Context(command), word)
        assert found is not None, word
        command = found
    return {option for parameter in command.params for option in parameter.opts}


def test_every_command_that_the_source_suggests_is_one_and_takes_what_completes_it() -> None:
    wrong, seen = [], 0
    for file in SOURCES:
        for line, function, words in suggested(file):
            seen += 1
            what = is_wrong(words)
            lacking = OPTIONS[function] - options_of(words) if not what else set()
            if what or lacking:
                place = f"{file.relative_to(ROOT)}:{line}"
                wrong.append(f"{place}: {words}: {what or f'takes no {lacking}'}")
    assert wrong == []
    assert seen > 60


_SPELLED = re.compile(rf"bkbox ({'|'.join(COMMANDS)})\b")


def spelled_out(file: Path) -> Iterator[tuple[int, str]]:
    """Texts that name a command, but for docstrings."""
    tree = _tree(file)
    docstrings = {
        id(statement.value)
        for node in ast.walk(tree)
        for statement in (node.body if isinstance(getattr(node, "body", None), list) else ())
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) not in docstrings and _SPELLED.search(node.value):
            yield node.lineno, node.value


def test_no_message_spells_out_a_command_line() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text}"
        for file in SOURCES
        for line, text in spelled_out(file)
        if str(file.relative_to(ROOT)) not in MENTIONS
    ]
    assert found == [], "make it with bkbox/base/commandline.py"


# ---- the pages ---------------------------------------------------------------------------------------


_START = re.compile(r"(?:^|[|&;(] ?|\$ |sudo -u \S+ |exec |\b[A-Z_]+=\S+ )bkbox (?=[a-z-])")


def in_blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Line and words of each command line in a block of code."""
    in_block, begun, line = False, 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        if raw.lstrip().startswith("```"):
            in_block, line = not in_block, ""
            continue
        if not in_block:
            continue
        begun = begun if line else number
        line += raw.strip()
        if line.endswith("\\"):
            line = line[:-1]
            continue
        for at in _START.finditer(line):
            if "…" not in line:  # words are left out
                yield begun, _words(line[at.end() :])
        line = ""


def _words(text: str) -> list[str]:
    """The words of the first command: what follows two spaces, a pipe or the like is no part of it."""
    lexer = shlex.shlex(re.split(r"\s{2,}|\s#", text)[0], posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("|&;<>()"):
            break
        words.append(word)
    return words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_line_in_a_block_of_a_page_is_taken(page: Path) -> None:
    wrong = [
        f"{page.name}:{number}: bkbox {shlex.join(words)}: {what}"
        for number, words in in_blocks(page.read_text())
        if (what := is_wrong([None if _TO_REPLACE.fullmatch(word) else word for word in words]))
    ]
    assert wrong == []


def test_what_is_wrong_would_be_seen() -> None:
    for line, what in (
        ("disks list", "no command 'disks'"),
        ("disk list --colour", "No such option"),
        ("job show", "wants arguments"),
        ("job show -o json", "Missing argument 'JOB'"),
        ("job show 1 2", "unexpected extra argument"),
        ("ledger show none", "Invalid value"),
    ):
        assert what in wrong_with(line.split())
    block = "```\necho x | bkbox log --colour \\\n  a\nsudo -u bkbox bkbox job show 1   why\n```\n"
    assert list(in_blocks(block)) == [
        (2, ["log", "--colour", "a"]),
        (4, ["job", "show", "1"]),
    ]
