"""Kinds of configuration values, and how values are found in and written as TOML.

A ``Kind`` knows three forms of a value: text (environment, ``--set``), plain (TOML and JSON: str,
int, float, bool, list of str) and the one that ``Config`` holds. The text of its errors
follows the key's name: 'has to be …'.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bkbox.base.text import quoted

_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "k": 1 << 10,
    "m": 1 << 20,
    "g": 1 << 30,
    "t": 1 << 40,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "ms": 0.001,
    "s": 1,
    "min": 60,
    "h": 3600,
    "%": 0.01,
}
_WITH_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z%]+)\s*")


REQUIRED = object()
"""Default of a key that must be set."""


class WrongValueError(ValueError):
    """A value that the key does not permit; the text says what it permits."""


class Kind(ABC):
    """A kind of values."""

    empty: object = ""
    """The value in ``Config`` if the default is the empty text and no other value was given."""

    @abstractmethod
    def from_text(self, text: str) -> object:
        """Converts text to the plain value. Raises WrongValueError."""

    @abstractmethod
    def check(self, value: object) -> object:
        """Converts a plain value to the one for ``Config``. Raises WrongValueError."""

    def to_toml(self, value: Any) -> object:
        """Inverse of ``check``."""
        return value

    @abstractmethod
    def permitted(self) -> str:
        """The permitted values, as text for operators."""


class Text(Kind):
    """A text that is not empty and in which ``problem`` finds no problem."""

    def __init__(self, problem: Callable[[str], str | None]) -> None:
        self._problem = problem

    def from_text(self, text: str) -> str:
        return text

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise WrongValueError(f"has to be a text in quotes, not {_described(value)}")
        problem = self._problem(value) if value else "must not be empty"
        if problem is not None:
            raise WrongValueError(f"{quoted(value)}: {problem}" if value else problem)
        return value

    def permitted(self) -> str:
        return "a text"


class Choice(Kind):
    """One of a fixed set of words."""

    def __init__(self, *choices: str) -> None:
        self._choices = choices

    def from_text(self, text: str) -> str:
        return text

    def check(self, value: object) -> str:
        if not isinstance(value, str) or value not in self._choices:
            permitted = ", ".join(map(quoted, self._choices))
            raise WrongValueError(f"has to be one of {permitted}, not {_described(value)}")
        return value

    def permitted(self) -> str:
        return f"one of {', '.join(self._choices)}"


class Flag(Kind):
    """true or false."""

    def from_text(self, text: str) -> bool:
        if text not in ("true", "false"):
            raise WrongValueError(f"has to be true or false, not {quoted(text)}")
        return text == "true"

    def check(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise WrongValueError(
                f"has to be true or false, without quotes, not {_described(value)}"
            )
        return value

    def permitted(self) -> str:
        return "true or false"


class Number(Kind):
    """A number from ``least`` to ``most``."""

    _noun = "a number"

    def __init__(self, least: float, most: float) -> None:
        self._least, self._most = least, most

    def from_text(self, text: str) -> int | float | str:
        for parse in (int, float):
            try:
                return parse(text)
            except ValueError:
                continue
        return text  # check() reports the problem

    def check(self, value: object) -> float:
        return float(self._in_range(value, (int, float)))

    def _in_range(self, value: object, types: tuple[type, ...]) -> int | float:
        requirement = f"has to be {self.permitted()}"
        if isinstance(value, bool) or not isinstance(value, types):
            raise WrongValueError(f"{requirement}, not {_described(value)}{self._hint(value)}")
        assert isinstance(value, (int, float))
        if not self._least <= value <= self._most:
            raise WrongValueError(f"{requirement}, not {value}")
        return value

    def permitted(self) -> str:
        return f"{self._noun} from {self._least:.15g} to {self._most:.15g}"

    def _hint(self, value: object) -> str:
        """A hint for a value written with a unit: the unit of a key is in its name."""
        match = _WITH_UNIT.fullmatch(value) if isinstance(value, str) else None
        factor = _UNITS.get(match[2].lower()) if match else None
        if match is None or factor is None:
            return ""
        return f": write {float(match[1]) * factor:.15g}, the unit is in the key's name"


class Whole(Number):
    """A whole number from ``least`` to ``most``."""

    _noun = "a whole number"

    def check(self, value: object) -> int:
        return int(self._in_range(value, (int,)))


class Folder(Kind):
    """The path of a folder."""

    empty: object = None

    def from_text(self, text: str) -> str:
        return text

    def check(self, value: object) -> Path:
        return _path(value)

    def to_toml(self, value: Path | None) -> str:
        return "" if value is None else str(value)

    def permitted(self) -> str:
        return "the path of a folder"


class File(Folder):
    """The path of a file."""

    def permitted(self) -> str:
        return "the path of a file"


class Folders(Kind):
    """A list of at least one path. As text they are separated by colons, as in PATH."""

    def from_text(self, text: str) -> list[str]:
        return [part for part in text.split(os.pathsep) if part]

    def check(self, value: object) -> tuple[Path, ...]:
        if not isinstance(value, list) or not value:
            shape = 'a list of at least one path, for example ["/data/a"]'
            raise WrongValueError(f"has to be {shape}, not {_described(value)}")
        return tuple(map(_path, value))

    def to_toml(self, value: tuple[Path, ...]) -> list[str]:
        return [str(path) for path in value]

    def permitted(self) -> str:
        return "a list of paths of folders"


class Texts(Kind):
    """A list of texts in which ``problem`` finds no problem. As text they are separated by semicolons."""

    empty: object = ()

    def __init__(self, problem: Callable[[str], str | None], permitted: str) -> None:
        self._problem = problem
        self._permitted = permitted

    def from_text(self, text: str) -> list[str]:
        return [part.strip() for part in text.split(";") if part.strip()]

    def check(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise WrongValueError(f"has to be {self._permitted}, not {_described(value)}")
        for item in value:
            problem = self._problem(item)
            if problem is not None:
                raise WrongValueError(problem)
        if len(set(value)) < len(value):
            raise WrongValueError("names one twice")
        return tuple(value)

    def to_toml(self, value: tuple[str, ...]) -> list[str]:
        return list(value)

    def permitted(self) -> str:
        return self._permitted


def key(
    kind: Kind, doc: str, default: object = REQUIRED, *, live: bool = False
) -> dict[str, object]:
    """Metadata of a key in the schema; ``default`` is in the form of TOML. ``live``: a running bookie applies a change
    (supervisor/config_reload.py)."""
    return {"kind": kind, "doc": doc, "default": default, "live": live}


def require_unicode(value: object) -> None:
    """Raises WrongValueError if a text anywhere in it cannot be written into the file, which is UTF-8: the system hands
    on bytes that are no text as surrogates."""
    match value:
        case str():
            if any("\ud800" <= char <= "\udfff" for char in value):
                raise WrongValueError(f"has a character that no text has: {quoted(value)}")
        case list():
            for item in value:
                require_unicode(item)
        case dict():
            require_unicode([*value, *value.values()])


def _path(value: object) -> Path:
    if not isinstance(value, str) or not value:
        raise WrongValueError(f"has to be a path in quotes, not {_described(value)}")
    # In a cookie, directories are separated by tabs and commas; the file is UTF-8.
    if any(char < " " or char == "," or "\ud800" <= char <= "\udfff" for char in value):
        raise WrongValueError(f"has a character that a path here must not have: {quoted(value)}")
    return Path(value)


def _described(value: object) -> str:
    """A wrong value, as text for operators."""
    if isinstance(value, str):
        return f"the text {quoted(value)}" if value else "an empty text"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    return "an empty list" if value == [] else str(value)


# ---- addresses --------------------------------------------------------------------------------


def split_address(text: str) -> tuple[str, int] | None:
    """Host and port of ``HOST:PORT`` or ``[IPV6]:PORT``; None for anything else."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^\s:/\[\]]+)):([0-9]{1,5})", text)
    if match is None or int(match[3]) > 65_535:
        return None
    return match[1] or match[2], int(match[3])


def join_address(host: str, port: int) -> str:
    """Inverse of split_address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """True if traffic to the host never leaves this machine."""
    return host in ("localhost", "::1") or bool(re.fullmatch(r"127(\.[0-9]{1,3}){3}", host))


# ---- TOML -------------------------------------------------------------------------------------

_PIECE = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|'
    r"'''.*?'{3,5}|"
    r'"(?:\\.|[^"\\\n])*"|'
    r"'[^'\n]*'|"
    r"#[^\n]*|"
    r"[\[\]{}=,.\n]|"
    r"[^\s\"'#\[\]{}=,.]+|"
    r"[^\S\n]+",
    re.DOTALL,
)


def key_lines(text: str) -> dict[str, int]:
    """The first line, from 1, of each key of the top level, in valid TOML.

    A table counts at its header.
    """
    lines: dict[str, int] = {}
    line, depth, at_start, in_table, in_header = 1, 0, True, False, False
    for match in _PIECE.finditer(text):
        piece = match[0]
        if piece == "\n":
            if depth == 0:
                at_start, in_header = True, False
        elif piece in ("[", "{"):
            if at_start:
                in_table = in_header = True
            depth += 1
        elif piece in ("]", "}"):
            depth -= 1
        elif at_start and not piece.isspace() and not piece.startswith("#"):
            at_start = False
            if in_header or not in_table:
                lines.setdefault(_bare(piece), line)
        line += piece.count("\n")
    return lines


def _bare(key: str) -> str:
    """A key without its quotes."""
    return str(tomllib.loads(f"key = {key}")["key"]) if key[0] in "\"'" else key


def to_toml(value: object) -> str:
    """A plain value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(to_toml, value))}]"
    if isinstance(value, str):
        # TOML reads all of JSON's escapes; DEL alone has to be escaped in TOML only.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise TypeError(f"{quoted(value)} has no place in a configuration")
