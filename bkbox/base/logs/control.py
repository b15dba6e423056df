"""Escapes terminal control characters in untrusted texts, before a log or a command shows them.

Control characters move the cursor, clear the screen, end a line or turn the direction of writing: a name that
contains them could write lines of its own, or over others.
"""

from __future__ import annotations

_C0, _C1 = range(0x20), range(0x7F, 0xA0)
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters with the property Bidi_Control in Unicode."""
_LINES = (0x2028, 0x2029)
_INVISIBLE = (
    0x200B,
    *range(0x2060, 0x2065),
    *range(0x206A, 0x2070),
    0xFEFF,
    *range(0xFFF9, 0xFFFC),
)
_SURROGATES = range(0xD800, 0xE000)
"""Surrogates (halves of characters), which JSON accepts and no terminal can be sent."""
_CODES = (*_C0, *_C1, *_DIRECTIONS, *_LINES, *_INVISIBLE, *_SURROGATES)
_ESCAPES = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _CODES}
_LEFT_BY_JSON = {code: f"\\u{code:04x}" for code in _CODES if code >= 0x7F}


def in_one_line(text: str) -> str:
    """The text with all control characters escaped, ends of lines and tabulators included."""
    return text if text.isprintable() else text.translate(_ESCAPES)


def in_lines(text: str) -> str:
    """The text with all control characters escaped but its own ends of lines."""
    return "\n".join(map(in_one_line, text.split("\n")))


def in_json(text: str) -> str:
    """JSON with the same meaning, in which control characters that its writer left are escaped. The same works for a
    text in double quotes of YAML.
    """
    return text.translate(_LEFT_BY_JSON)
