"""Removes secrets from text.

Two methods, because each misses what the other finds: known secret values (from the files and variables that hold
them) are removed wherever they occur; and any value in the place of a secret is removed whatever it is.
"""

from __future__ import annotations

import base64
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

REMOVED = "[removed]"

CLIENT_FILE = "BKBOX_CLIENT_FILE"

_LENGTH_MIN = 4
"""A shorter value would remove half of the text with it; an operator with such a password has other problems."""

_FILE_BYTES_MAX = 1 << 20

_NAMES = (
    r"password|passwd|passphrase|secret|token|credentials?|authorization|cookie-secret|"
    r"api[_-]?key|access[_-]?key|private[_-]?key|master[_-]?key"
)
_NAME = re.compile(rf"(?i)({_NAMES})")
_FILE_KEY = re.compile(r"(?i)(file|path)$")
_PUBLIC_FILE = re.compile(r"(?i)certificate|(^|_)ca_|public")
"""The files named by a configuration that hold no secrets. Every other one is read, whatever its name."""
_FILES_IN_URI = re.compile(r"[?&]([a-z_]+file)=([^&\s]+)")

_AFTER_A_NAME = re.compile(
    rf"""(?ix)
    (["']?[\w.-]*(?:{_NAMES})[\w.-]*["']?      # a name that says so, perhaps quoted
     \s*[=:]\s*|--?[\w-]*(?:{_NAMES})[\w-]*\s+) # its = or : or, for an option, space
    (?:(?:basic|bearer|digest)\s+)?
    ("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,;&"'}}\])]+)
    """
)
_SCHEMES = re.compile(r"(?i)\b(basic|bearer)\s+[A-Za-z0-9+/=._~-]{8,}")
_USER_IN_URI = re.compile(r"(?i)([a-z][a-z0-9+.-]*://)[^/\s:@]*:[^/\s@]*@")
_PEM = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(-----END \1-----|\Z)", re.DOTALL)


class Secrets:
    """The secrets to remove. Never printed: it has no text of its own."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        """``known``: secret values, verbatim; their forms in URIs, JSON and headers are removed, too."""
        forms = {form for text in known for form in _forms(text.strip())}
        longest_first = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def removed_from(self, text: str) -> str:
        """The text without secrets."""
        if self._known is not None:
            text = self._known.sub(REMOVED, text)
        text = _PEM.sub(REMOVED, text)
        text = _USER_IN_URI.sub(rf"\1{REMOVED}@", text)
        text = _AFTER_A_NAME.sub(_without_value, text)
        return _SCHEMES.sub(rf"\1 {REMOVED}", text)

    def removed_from_value(self, value: object, name: str = "") -> object:
        """A value for ``json.dumps``, without secrets. A value under a secret's name is removed entirely, except
        paths of files that hold it, and numbers.
        """
        if isinstance(value, Mapping):
            return {
                self.removed_from(str(key)): self.removed_from_value(item, str(key))
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.removed_from_value(item, name) for item in value]
        if isinstance(value, str):
            if value and _NAME.search(name) and not _FILE_KEY.search(name):
                return REMOVED
            return self.removed_from(value)
        return value


def known_secrets(values: Mapping[str, object], environ: Mapping[str, str]) -> list[str]:
    """Secret values in a configuration (its keys) and an environment, or in files that these name: also a file that
    the URI of a metadata store names, and the TOML file of BKBOX_CLIENT_FILE.
    """
    found = []
    ours = {name: text for name, text in environ.items() if _NAME.search(name)}
    for name, value in (*values.items(), *ours.items()):
        if not isinstance(value, str) or not value:
            continue
        if _FILE_KEY.search(name):
            found += [] if _PUBLIC_FILE.search(name) else _contents(Path(value))
        elif _NAME.search(name):
            found.append(value)
        for inner, path in _FILES_IN_URI.findall(value):
            found += [] if _PUBLIC_FILE.search(inner) else _contents(Path(path))
    client_file = environ.get(CLIENT_FILE)
    if client_file:
        folder = Path(client_file).parent
        named = _toml(client_file)
        files = {
            key: str(folder / str(file)) for key, file in named.items() if _FILE_KEY.search(key)
        }
        found += known_secrets({**named, **files}, {})
    return found


def _contents(path: Path) -> list[str]:
    """The secrets in a file: its whole content, each line, and the part after the name in NAME:SECRET."""
    try:
        if not path.is_file() or path.stat().st_size > _FILE_BYTES_MAX:
            return []
        text = path.read_text("utf-8", "replace")
    except OSError:
        return []
    lines = text.splitlines()
    return [text, *lines, *(line.partition(":")[2] for line in lines)]


def _toml(path: str) -> dict[str, object]:
    """The parsed file; empty if it is not TOML."""
    try:
        return tomllib.loads(Path(path).read_text("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return {}


def _forms(text: str) -> set[str]:
    if len(text) < _LENGTH_MIN:
        return set()
    encoded = base64.b64encode(text.encode()).decode().rstrip("=")
    forms = {text, quote(text), quote(text, safe=""), json.dumps(text)[1:-1], repr(text)[1:-1]}
    return {*forms, encoded, text.encode().hex()}


def _without_value(found: re.Match[str]) -> str:
    quoted = found[2][0] if found[2][0] in "\"'" else ""
    return f"{found[1]}{quoted}{REMOVED}{quoted}"
