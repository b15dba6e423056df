"""The LAYOUT node: the ledger manager of a cluster, that is, the mapping of ledger ids to paths.

``<format version>``, newline, ``<factory class>:<manager version>``. Format 1 carries a short name in place of the
class. Source: LedgerLayout.java.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bkbox.base.text import quoted
from bkbox.errors import EncodingError
from bkbox.wire.metadata.text_format import text_of

FORMAT_VERSION = 2


@dataclass(frozen=True, slots=True)
class LedgerLayout:
    """Content of the LAYOUT node."""

    factory_class: str
    manager_version: int = 1
    format_version: int = FORMAT_VERSION


def encode(layout: LedgerLayout) -> bytes:
    """The bytes; they do not end with a newline."""
    return (f"{layout.format_version}\n{layout.factory_class}:{layout.manager_version}").encode()


def decode(data: bytes) -> LedgerLayout:
    """The layout in stored bytes; bytes after the second line are ignored. Raises EncodingError."""
    lines = text_of(data).split("\n")
    match = re.fullmatch(r"([^:]*):([+-]?[0-9]{1,9}):*", lines[1]) if len(lines) > 1 else None
    if lines[0] not in ("1", "2") or match is None:
        raise EncodingError(f"LAYOUT cannot be read: {quoted(data[:100])}")
    return LedgerLayout(match[1], int(match[2]), int(lines[0]))
