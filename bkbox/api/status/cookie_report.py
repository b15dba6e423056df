"""The cookies field by field, as the status document shows them: each stored value next to the one expected from the
configuration."""

from __future__ import annotations

from bkbox.api.admin.status import CookieField, Cookies
from bkbox.errors import EncodingError
from bkbox.supervisor.boot.cookies import Evidence, compare
from bkbox.wire.metadata import cookie as cookies
from bkbox.wire.metadata.cookie import Cookie

METADATA = "metadata"


def view_of(evidence: Evidence, now_ms: int) -> Cookies:
    """The cookies in all places, and the judgement's findings."""
    report = compare(evidence)
    places = [(METADATA, None if evidence.stored is None else evidence.stored.value)]
    places += [(str(item.path), item.version) for item in evidence.directories]
    found = [
        field
        for where, stored in places
        if stored is not None
        for field in _fields(where, evidence.expected, stored)
    ]
    known = {(field.where, field.field) for field in found}
    found += [
        CookieField(each.where, each.field, each.expected, each.found, same=False)
        for each in report.differences
        if (each.where, each.field) not in known
    ]
    return Cookies(report.ok, tuple(found), report.advice, checked_ms=now_ms)


def _fields(where: str, expected: Cookie, stored: bytes) -> list[CookieField]:
    """The fields of a stored cookie next to the expected ones; empty if the bytes are no cookie, which the judgement
    reports."""
    try:
        found = cookies.decode(stored)
    except EncodingError:
        return []
    differing = {each.field for each in cookies.differences(expected, found)}
    return [
        CookieField(where, name, _shown(ours), _shown(theirs), same=name not in differing)
        for name, ours, theirs in (
            ("bookieHost", expected.bookie_host, found.bookie_host),
            ("journalDir", expected.journal_dir, found.journal_dir),
            ("ledgerDirs", expected.ledger_dirs, found.ledger_dirs),
            ("indexDirs", expected.index_dirs, found.index_dirs),
            ("instanceId", expected.instance_id, found.instance_id),
        )
    ]


def _shown(value: str | None) -> str:
    return "(none)" if value is None else value.replace("\t", " ")
