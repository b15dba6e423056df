"""Cookies: the identity of a bookie, in the metadata store and as ``VERSION`` on each of its disks.

Layout 5 is written: ``5`` on a line, then CookieFormat as text. Layouts 4 and above are read like that, layout 3 as
three plain lines, anything older as an empty cookie. Directories are the strings of the configuration: journal
directories joined by commas, ledger and index directories as their count and then each one, all tab-separated.

The cookie made from the configuration is compared with a stored one. An absent list of index directories stands for
the ledger directories. Storage may grow only if the caller asks for the superset rule: then ledger and index
directories may have been added, journal directories never. Source: Cookie.java, DataFormats.proto.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bkbox.base.text import quoted
from bkbox.errors import CookieMismatchError, EncodingError
from bkbox.wire.metadata import text_format
from bkbox.wire.protobuf import Field, Kind, Label, Message

CURRENT_LAYOUT = 5
_LAYOUT_LINES = 3

_FORMAT = Message(
    "CookieFormat",
    Field(1, "bookieHost", Kind.STRING, Label.REQUIRED),
    Field(2, "journalDir", Kind.STRING, Label.REQUIRED),
    Field(3, "ledgerDirs", Kind.STRING, Label.REQUIRED),
    Field(4, "instanceId", Kind.STRING),
    Field(5, "indexDirs", Kind.STRING),
)


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie, its lists of directories as stored. Only layouts below 4 lack the first three."""

    bookie_host: str | None
    journal_dir: str | None
    ledger_dirs: str | None
    instance_id: str | None = None
    index_dirs: str | None = None
    layout_version: int = CURRENT_LAYOUT


class Difference(NamedTuple):
    """A field, named as in the stored cookie, whose two values differ."""

    field: str
    config: str
    stored: str


def cookie_of(
    bookie: str,
    journal_dirs: Sequence[str],
    ledger_dirs: Sequence[str],
    index_dirs: Sequence[str] | None = None,
    instance_id: str | None = None,
) -> Cookie:
    """The cookie of a configuration."""
    return Cookie(
        bookie_host=bookie,
        journal_dir=",".join(journal_dirs),
        ledger_dirs=_join(ledger_dirs),
        instance_id=instance_id or None,
        index_dirs=None if index_dirs is None else _join(index_dirs),
    )


def directories(stored: str | None) -> tuple[str, ...]:
    """The directories of a stored list."""
    return tuple((stored or "").split("\t")[1:])


def _join(dirs: Sequence[str]) -> str:
    return "\t".join((str(len(dirs)), *dirs))


def encode(cookie: Cookie) -> bytes:
    """The bytes in layout 5. Raises EncodingError for layouts 3 and older, which are only read."""
    if cookie.layout_version <= _LAYOUT_LINES:
        raise EncodingError(f"a cookie of layout {cookie.layout_version} cannot be written")
    text = text_format.encode(
        _FORMAT,
        {
            "bookieHost": cookie.bookie_host,
            "journalDir": cookie.journal_dir,
            "ledgerDirs": cookie.ledger_dirs,
            "instanceId": cookie.instance_id,
            "indexDirs": cookie.index_dirs,
        },
    )
    return f"{CURRENT_LAYOUT}\n{text}".encode()


def decode(data: bytes) -> Cookie:
    """The cookie in stored bytes. Raises EncodingError."""
    first, *lines = re.split("\r\n|\n|\r", text_format.text_of(data), maxsplit=1)
    number = first.strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", number):
        raise EncodingError(
            f"a cookie begins with its layout version, not with {quoted(first[:20])}"
        )
    layout = int(number)
    body = "".join(lines)
    if layout < _LAYOUT_LINES:
        return Cookie(None, None, None, layout_version=layout)
    if layout == _LAYOUT_LINES:
        host, journal, ledgers = [*text_format.lines_of(body), None, None, None][:3]
        return Cookie(host, journal, ledgers, layout_version=layout)
    values = text_format.decode(_FORMAT, body)
    return Cookie(
        values["bookieHost"],
        values["journalDir"],
        values["ledgerDirs"],
        values.get("instanceId") or None,
        values.get("indexDirs") or None,
        layout,
    )


# ---- comparison -------------------------------------------------------------------------------


def differences(config: Cookie, stored: Cookie) -> list[Difference]:
    """The fields in which the cookies differ, if no change is allowed."""
    return _differences(config, stored, _equal)


def superset_differences(config: Cookie, stored: Cookie) -> list[Difference]:
    """The fields in which the cookies differ, if directories may have been added."""
    return _differences(config, stored, _covers)


def verify(config: Cookie, stored: Cookie) -> None:
    """Raise CookieMismatchError unless nothing has changed."""
    _raise_on(differences(config, stored))


def verify_superset(config: Cookie, stored: Cookie) -> None:
    """Raise CookieMismatchError unless nothing has changed except that directories were added."""
    _raise_on(superset_differences(config, stored))


def _differences(
    config: Cookie, stored: Cookie, agree: Callable[[str | None, str | None], bool]
) -> list[Difference]:
    if stored.layout_version < _LAYOUT_LINES:
        return [Difference("layoutVersion", str(config.layout_version), str(stored.layout_version))]
    config_index = config.index_dirs or config.ledger_dirs
    stored_index = stored.index_dirs or stored.ledger_dirs
    checks = (
        ("bookieHost", config.bookie_host, stored.bookie_host, _equal),
        ("journalDir", config.journal_dir, stored.journal_dir, _equal),
        ("ledgerDirs", config.ledger_dirs, stored.ledger_dirs, agree),
        ("indexDirs", config_index, stored_index, agree),
        ("instanceId", config.instance_id, stored.instance_id, _equal),
    )
    return [
        Difference(field, _shown(ours), _shown(theirs))
        for field, ours, theirs, test in checks
        if not test(ours, theirs)
    ]


def _equal(ours: str | None, theirs: str | None) -> bool:
    return ours == theirs


def _covers(ours: str | None, theirs: str | None) -> bool:
    return {*directories(ours)} >= {*directories(theirs)}


def _shown(value: str | None) -> str:
    return "(none)" if value is None else value.replace("\t", " ")


def _raise_on(found: list[Difference]) -> None:
    if found:
        raise CookieMismatchError(
            "; ".join(f"{d.field}: configured {d.config}, stored {d.stored}" for d in found)
        )
