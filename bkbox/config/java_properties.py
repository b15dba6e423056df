"""Parses property files as Java and Apache Commons Configuration write them, such as bk_server.conf.

Accepted: comments (# and !), keys that end at '=', ':' or white space, continuation lines after a backslash,
backslash escapes, repeated keys. Refused, with the line: ``include``, and values made of other values (``${...}``),
because their meaning is elsewhere.
"""

from __future__ import annotations

import re

from bkbox.base.text import quoted
from bkbox.base.values import frozen_struct
from bkbox.errors import ConfigError

_KEY = re.compile(r"((?:\\.|[^\\\s=:])+)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


@frozen_struct
class Property:
    """One key with its value, and its first line, counted from 1."""

    key: str
    value: str
    line: int

    def items(self) -> list[str]:
        """The value as a list: its parts between commas, without empty ones."""
        return [part.strip() for part in self.value.split(",") if part.strip()]


def parse(text: str, name: str) -> dict[str, Property]:
    """The properties of a file, by key. A repeated key is a list, so its values are joined by commas.

    ``name``: the file's name, for problems. Raises ConfigError with all of them.
    """
    found: dict[str, Property] = {}
    problems = []
    for line, content in _logical_lines(text):
        match = _KEY.fullmatch(content)
        if match is None:
            problems.append(f"{name}:{line}: {quoted(content)} is not of the form key=value")
            continue
        key, text_value = _unescaped(match[1]), _unescaped(match[2])
        if key in ("include", "includeoptional"):
            problems.append(f"{name}:{line}: {key} is not followed: put the files together first")
        elif "${" in text_value:
            problems.append(
                f"{name}:{line}: {key} is made of another value: put {quoted(text_value)} in full"
            )
        elif key in found:
            before = found[key]
            found[key] = Property(key, f"{before.value},{text_value}", before.line)
        else:
            found[key] = Property(key, text_value, line)
    if problems:
        raise ConfigError(problems)
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Logical lines: continuation lines are joined, comments and empty lines dropped."""
    found: list[tuple[int, str]] = []
    going_on = False
    for number, raw in enumerate(text.splitlines(), 1):
        content = raw.lstrip()
        if not going_on and (not content or content[0] in "#!"):
            continue
        backslashes = len(content) - len(content.rstrip("\\"))
        goes_on = backslashes % 2 == 1
        content = content[:-1] if goes_on else content.rstrip()
        if going_on:
            first, before = found[-1]
            found[-1] = (first, before + content)
        else:
            found.append((number, content))
        going_on = goes_on
    return found


def _unescaped(text: str) -> str:
    def unescape(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _CONTROLS.get(code, code)

    return _ESCAPE.sub(unescape, text)
