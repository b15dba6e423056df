"""Characters for terminals that have ASCII alone: everything is drawn with Unicode, and translated line by line on its
way to such a terminal, cell for cell."""

from __future__ import annotations

from collections.abc import Mapping

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_PLAIN_TERMS = frozenset({"dumb", "linux", "vt100", "vt102", "vt220"})

_ASCII = str.maketrans(
    {
        **dict.fromkeys("─━═╸╺▔", "-"),
        **dict.fromkeys("│┃▏▎▊▌▐▕", "|"),
        **dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼", "+"),
        **dict(zip("▂▃▄▅▆▇█", ".:-=+*#", strict=True)),
        "▁": "_",
        "░": ".",
        "·": ".",
        "…": "~",
        "→": ">",
        "←": "<",
        "↑": "^",
        "↓": "v",
        "⏎": "<",
        "•": "*",
    }
)


def is_plain(environ: Mapping[str, str], encoding: str) -> bool:
    """True for a terminal that shows ASCII alone, by its kind, its locale or the encoding of the screen."""
    if environ.get("TERM", "dumb") in _PLAIN_TERMS:
        return True
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    return "utf" not in encoding.lower() or locale in ("C", "POSIX")


def ascii_of(text: str) -> str:
    """The text in ASCII, as many characters."""
    found = text.translate(_ASCII)
    return found if found.isascii() else "".join(c if c.isascii() else "?" for c in found)


class AsciiFilter(LineFilter):
    """Translates each line that is drawn."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(ascii_of(text), style, control) for text, style, control in segments]
