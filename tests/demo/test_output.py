"""Both ways to tell the story say the same words."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bkbox.demo.output import Output, PlainOutput, TerminalOutput, amount

LONG = "a sentence that goes on and on, " * 10


def write_all(output: Output) -> None:
    output.heading("Step 1 of 6: Title")
    output.explain(f"said {LONG}")
    output.proved(f"proved {LONG}")
    output.failed("failed at this")
    output.quote(f"$ command\nanswer [1] {LONG}")
    output.line("0123abcd  a/file [bold].py")
    with output.progress("writing", 100, "bytes", 40) as advance:
        advance(70)
        advance(100)
    with output.progress("repairing", 10, "entries") as advance:
        advance(10)
    output.table(("step", "bytes", "what"), [("1", "9 bytes", "this"), ("2", "10.5 MB", "that")])


def words(text: str) -> list[str]:
    return [word for word in text.split() if word.isascii()]


def test_plain(capsys: pytest.CaptureFixture[str]) -> None:
    write_all(PlainOutput())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "== Step 1 of 6: Title ==" in lines
    assert "FAILED: failed at this" in lines
    assert "  | $ command" in lines
    assert "0123abcd  a/file [bold].py" in lines
    assert lines[-3:] == [
        "step    bytes  what",
        "   1  9 bytes  this",
        "   2  10.5 MB  that",
    ]


def test_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    write_all(PlainOutput())
    plain = words(capsys.readouterr().out)
    out = io.StringIO()
    write_all(TerminalOutput(Console(file=out, width=100, force_terminal=True, color_system=None)))
    told = words(out.getvalue())
    assert set(plain) - {"==", "ok:", "FAILED:", "|"} <= set(told)
    assert {"writing", "repairing", "10/10"} <= set(told)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (99_999, "99,999 bytes"), (100_000, "0.1 MB"), (11_420_000, "11.4 MB")],
)
def test_amount(count: int, text: str) -> None:
    assert amount(count) == text
