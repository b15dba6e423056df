"""Responses that consist of a code, in the protocol version of their request.

Every response carries the ids of its request, whatever the code: Java's clients take them from there.
"""

from __future__ import annotations

import logging

from bkbox.wire import v2, v3
from bkbox.wire.codes import Code

log = logging.getLogger(__name__)

Request = (
    v2.AddRequest
    | v2.ReadRequest
    | v2.BatchReadRequest
    | v2.BadAdd
    | v2.BadVersion
    | v3.LedgerRequest
)
"""The requests that reach the bookie of a disk; the front-end responds to all others."""


def on_v2(code: Code) -> Code:
    """Map a code for version 2. Its clients drop the connection at EUNKNOWNLEDGERSTATE; EIO says 'unknown' too and
    keeps it."""
    return Code.EIO if code is Code.EUNKNOWNLEDGERSTATE else code


def bare(request: Request, code: Code) -> bytes:
    """The complete response frame for a request and a code."""
    if code is not Code.EOK and log.isEnabledFor(logging.DEBUG):
        ledger = getattr(
            request, "ledger_id", "?"
        )  # no other field: a request holds a key, and an entry
        log.debug("%s of ledger %s gets %s", type(request).__name__, ledger, code.name)
    if isinstance(request, v2.AddRequest):
        return v2.encode_response(
            v2.AddResponse(request.version, code, request.ledger_id, request.entry_id)
        )
    if isinstance(request, v3.LedgerRequest):
        return v3.encode_response(v3.refusal(request, code))
    refusal = v2.refusal(request, on_v2(code))
    assert refusal is not None
    return v2.encode_response(refusal)
