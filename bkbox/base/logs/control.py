"""What a terminal would obey, in texts that others chose: escaped before a log or a command shows them.

It moves the cursor, clears the screen, ends a line or turns the direction of writing: a name with it in it could write
lines of its own, or over others.
"""

from __future__ import annotations

_C0, _C1 = range(0x20), range(0x7F, 0xA0)
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Those with the property Bidi_Control in Unicode."""
_LINES = (0x2028, 0x2029)
_INVISIBLE = (
    0x200B,
    *range(0x2060, 0x2065),
    *range(0x206A, 0x2070),
    0xFEFF,
    *range(0xFFF9, 0xFFFC),
)
_SURROGATES = range(0xD800, 0xE000)
"""Halves of characters, which JSON lets through and no terminal can be sent."""
_CODES = (*_C0, *_C1, *_DIRECTIONS, *_LINES, *_INVISIBLE, *_SURROGATES)
_ESCAPES = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _CODES}
_LEFT_BY_JSON = {code: f"\\u{code:04x}" for code in _CODES if code >= 0x7F}


def in_one_line(text: str) -> str:
    """The text without any; ends of lines and tabulators are escaped, too."""
    return text if text.isprintable() else text.translate(_ESCAPES)


def in_lines(text: str) -> str:
    """The text with nothing but its own lines."""
    return "\n".join(map(in_one_line, text.split("\n")))


def in_json(text: str) -> str:
    """JSON that means the same: what its writer leaves as it is, being allowed there, is escaped. So it is in a text in
    double quotes of YAML."""
    return text.translate(_LEFT_BY_JSON)
