"""Counts, rates and errors in words."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import bkbox
from bkbox.words import counted, error_text, plural_of, rate_of

SOURCES = Path(bkbox.__file__).parent
OWN_WORDS = ("sim", "model", "chaos", "bench", "demo")
"""Packages whose counts are never one, or that are not for operators."""

NOUNS = ("ledgers", "entries", "copies", "segments", "steps", "disks", "records", "events")


def test_one_is_singular() -> None:
    assert [counted(n, "ledger") for n in (0, 1, 2000)] == [
        "0 ledgers",
        "1 ledger",
        "2,000 ledgers",
    ]
    assert [counted(n, "entry", "are") for n in (1, 2)] == ["1 entry is", "2 entries are"]
    assert plural_of("more entry") == "more entries"


def test_rates() -> None:
    assert [rate_of(text) for text in ("none", "0", "1B", "2KiB/s", "3mib")] == [
        0,
        0,
        1,
        2048,
        3 << 20,
    ]
    for wrong in ("50", "-1B", "1.5MiB", "50 MB", "", "٣B", "1B/m"):
        with pytest.raises(ValueError, match="is not a rate: write it as 50MiB"):
            rate_of(wrong)


def test_an_error_is_never_its_repr() -> None:
    assert error_text(TimeoutError("timed out")) == "timed out"
    assert error_text(TimeoutError()) == "timeout"
    assert error_text(ConnectionResetError()) == "connection reset"
    assert error_text(OSError(28, "No space left on device")) == "No space left on device"
    assert error_text(FileNotFoundError(2, "No such file", "/x")) == "No such file: /x"
    assert error_text(KeyError("name")) == "name is missing"


def uncounted(source: Path) -> Iterator[str]:
    """Numbers in texts for people with a noun that stays plural for one."""
    for node in ast.walk(ast.parse(source.read_text())):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, text in zip(node.values, node.values[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                words = str(text.value).removeprefix(" ").replace(",", " ").split(" ")
                if str(text.value)[:1] == " " and words[0] in NOUNS:
                    yield f"{source}:{node.lineno}: {ast.unparse(value.value)} {words[0]}"


def test_every_count_in_a_message_has_its_singular() -> None:
    found = [
        where
        for source in sorted(SOURCES.rglob("*.py"))
        if source.relative_to(SOURCES).parts[0] not in OWN_WORDS
        for where in uncounted(source)
    ]
    assert found == [], "use bkbox.words.counted"
