"""Tables and JSON as they come out."""

from __future__ import annotations

import io
import json
import sys

import pytest

from bkbox.cli.lib.output import _text, print_document, print_fields, print_table, size
from bkbox.jobs.job import JobState

LONG = "x" * 300


def test_a_plain_table_is_aligned_and_uncut(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "what"], [("a", LONG), ("longer", None), ("c", ["p", "q"])], title="t")
    assert capsys.readouterr().out.splitlines() == [
        "t:",
        "name    what",
        f"a       {LONG}",
        "longer  -",
        "c       p, q",
    ]


def test_a_table_at_a_terminal_shows_brackets_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "dumb")
    print_table(["path"], [("/data/[red]a",)], title="disks")
    assert "/data/[red]a" in terminal.getvalue()


def test_fields(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("a", True), ("long name", ()), ("n", 0)])
    assert capsys.readouterr().out == "a          yes\nlong name  -\nn          0\n"


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    print_document({"path": "/data/ü", "n": None}, "json")
    assert json.loads(capsys.readouterr().out) == {"path": "/data/ü", "n": None}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (2**30, "1.0 GiB"),
        (5 * 2**50, "5120.0 TiB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


def test_a_cell_is_never_the_repr_of_an_object() -> None:
    class Odd:
        pass

    cells: list[tuple[object, str]] = [
        (None, "-"),
        ([], "-"),
        ({}, "-"),
        ({"a": 1, "b": ["x", None]}, "a = 1, b = x, -"),
        (("a", True), "a, yes"),
        (b"\xff", "0xff"),
        (TimeoutError("timed out"), "timed out"),
        (JobState.DONE, "done"),
        (Odd(), "a value of type Odd"),
    ]
    assert [_text(cell) for cell, _ in cells] == [text for _, text in cells]
