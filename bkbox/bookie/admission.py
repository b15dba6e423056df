"""Admission of requests by the status of their ledger: the complete rule as one table.

A ledger on a bookie has one of five statuses. Limbo implies fenced: every path into limbo fences the ledger.

=========  ====================================================================================
UNKNOWN    no record of it: no key was ever stored
OPEN       known, normal adds are accepted
FENCED     known, normal adds are refused, for good
LIMBO      fenced, and entries may be missing that were acknowledged: never say 'no such entry'
DELETED    the cluster has no such ledger any more, or this bookie no part in it, and its entries
           were removed. It was fenced before: a writer that goes on gets EFENCED, and ends;
           'no such ledger' would make it look for another bookie. Reads, fences and LACs: no such ledger
=========  ====================================================================================

The key is checked before the status (LedgerDescriptorImpl.java does the same): a wrong key gets EUA and changes
nothing. A ledger in the trash (``deleted_ms`` without ``emptied``) has all its entries and is FENCED. A recovery add
means that a recovery or repair relies on this bookie again: it takes a ledger out of the trash. A ledger whose
entries are gone goes into LIMBO, until repair has found out which entries this bookie must hold. A ledger without a
known key (rebuilt from version 1 metadata, which has none) adopts the first key it is sent.

Source: BP-46; BookieImpl.java, HandleFactoryImpl.java (LedgerFencedAndDeletedException), WriteEntryProcessorV3.java,
ReadEntryProcessorV3.java, WriteLacProcessorV3.java.
"""

from __future__ import annotations

from enum import Enum

from bkbox.base.constant_time import compare_digest
from bkbox.base.values import frozen_struct
from bkbox.wire.codes import Code


class LedgerStatus(Enum):
    UNKNOWN = "unknown"
    OPEN = "open"
    FENCED = "fenced"
    LIMBO = "limbo"
    DELETED = "deleted"


class Request(Enum):
    """The kinds of request that admission distinguishes."""

    ADD = "add"
    RECOVERY_ADD = "recovery add"
    WRITE_LAC = "write LAC"
    FENCE = "fence"


@frozen_struct
class Verdict:
    """The result of admission: a response code (EOK if admitted), and the ledger's status from then on."""

    code: Code
    after: LedgerStatus


ADMISSION: dict[tuple[LedgerStatus, Request], Verdict] = {
    (LedgerStatus.UNKNOWN, Request.ADD): Verdict(Code.EOK, LedgerStatus.OPEN),
    (LedgerStatus.UNKNOWN, Request.RECOVERY_ADD): Verdict(Code.EOK, LedgerStatus.OPEN),
    (LedgerStatus.UNKNOWN, Request.WRITE_LAC): Verdict(Code.EOK, LedgerStatus.OPEN),
    (LedgerStatus.UNKNOWN, Request.FENCE): Verdict(Code.EOK, LedgerStatus.FENCED),
    (LedgerStatus.OPEN, Request.ADD): Verdict(Code.EOK, LedgerStatus.OPEN),
    (LedgerStatus.OPEN, Request.RECOVERY_ADD): Verdict(Code.EOK, LedgerStatus.OPEN),
    (LedgerStatus.OPEN, Request.WRITE_LAC): Verdict(Code.EOK, LedgerStatus.OPEN),
    (LedgerStatus.OPEN, Request.FENCE): Verdict(Code.EOK, LedgerStatus.FENCED),
    (LedgerStatus.FENCED, Request.ADD): Verdict(Code.EFENCED, LedgerStatus.FENCED),
    (LedgerStatus.FENCED, Request.RECOVERY_ADD): Verdict(Code.EOK, LedgerStatus.FENCED),
    (LedgerStatus.FENCED, Request.WRITE_LAC): Verdict(Code.EOK, LedgerStatus.FENCED),
    (LedgerStatus.FENCED, Request.FENCE): Verdict(Code.EOK, LedgerStatus.FENCED),
    (LedgerStatus.LIMBO, Request.ADD): Verdict(Code.EFENCED, LedgerStatus.LIMBO),
    (LedgerStatus.LIMBO, Request.RECOVERY_ADD): Verdict(Code.EOK, LedgerStatus.LIMBO),
    (LedgerStatus.LIMBO, Request.WRITE_LAC): Verdict(Code.EOK, LedgerStatus.LIMBO),
    (LedgerStatus.LIMBO, Request.FENCE): Verdict(Code.EOK, LedgerStatus.LIMBO),
    (LedgerStatus.DELETED, Request.ADD): Verdict(Code.EFENCED, LedgerStatus.DELETED),
    (LedgerStatus.DELETED, Request.RECOVERY_ADD): Verdict(Code.EOK, LedgerStatus.LIMBO),
    (LedgerStatus.DELETED, Request.WRITE_LAC): Verdict(Code.ENOLEDGER, LedgerStatus.DELETED),
    (LedgerStatus.DELETED, Request.FENCE): Verdict(Code.ENOLEDGER, LedgerStatus.DELETED),
}

ABSENT: dict[LedgerStatus, Code] = {
    LedgerStatus.UNKNOWN: Code.ENOLEDGER,
    LedgerStatus.OPEN: Code.ENOENTRY,
    LedgerStatus.FENCED: Code.ENOENTRY,
    LedgerStatus.LIMBO: Code.EUNKNOWNLEDGERSTATE,
    LedgerStatus.DELETED: Code.ENOLEDGER,
}
"""The response code of a read that found no entry, by status."""


def admit(status: LedgerStatus, request: Request, stored_key: bytes | None, key: bytes) -> Verdict:
    """Check the key, then apply the table."""
    if stored_key is not None and not compare_digest(stored_key, key):
        return Verdict(Code.EUA, status)
    return ADMISSION[status, request]
