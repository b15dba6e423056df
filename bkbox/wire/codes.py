"""Response codes of both protocol versions and their value as evidence.

Source: BookieProtocol.java (v2), BookkeeperProtocol.proto (v3), CompletionValue.java (how clients interpret them).
"""

from __future__ import annotations

from enum import Enum


class Evidence(Enum):
    """The meaning of a response about an entry: BookKeeper's safety on the wire rests on keeping these apart."""

    POSITIVE = "positive"
    NEGATIVE = "explicit negative"
    UNKNOWN = "unknown"


class Code(Enum):
    """One response code; the value is (v2 number, v3 number)."""

    EOK = (0, 0)
    ENOLEDGER = (1, 402)
    ENOENTRY = (2, 403)
    EBADREQ = (100, 404)
    EIO = (101, 501)
    EUA = (102, 502)
    EBADVERSION = (103, 503)
    EFENCED = (104, 504)
    EREADONLY = (105, 505)
    ETOOMANYREQUESTS = (106, 506)
    EUNKNOWNLEDGERSTATE = (107, 507)

    def __init__(self, v2: int, v3: int) -> None:
        self.v2 = v2
        self.v3 = v3

    @property
    def evidence(self) -> Evidence:
        """Only EOK is positive and only 'no such ledger' and 'no such entry' are negative."""
        if self is Code.EOK:
            return Evidence.POSITIVE
        if self in (Code.ENOLEDGER, Code.ENOENTRY):
            return Evidence.NEGATIVE
        return Evidence.UNKNOWN


_BY_V2 = {code.v2: code for code in Code}
_BY_V3 = {code.v3: code for code in Code}


def code_from_v2(number: int) -> Code | None:
    """The code with this v2 number, or None if BookKeeper defines none."""
    return _BY_V2.get(number)


def code_from_v3(number: int) -> Code | None:
    """The code with this v3 number, or None if BookKeeper defines none."""
    return _BY_V3.get(number)
