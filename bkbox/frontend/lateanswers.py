"""Answers for a client that does not take them: the same ones, but those that carry much are put off.

An answer that is a code and ids stays as it is: it says what was done. One that found something says instead that
there are too many requests, and the client may ask again.
"""

from __future__ import annotations

from bkbox.base.values import replaced
from bkbox.errors import EncodingError
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.frames import bodies, frame


def without_entries(frames: bytes | memoryview) -> bytes:
    """Whole frames for whole frames, of either version."""
    return b"".join(
        _light_v2(body) if body[0] < v3.FIRST_BYTE_MIN else _light_v3(body)
        for body in bodies(frames, len(frames))
    )


def _light_v2(body: memoryview) -> bytes:
    response = v2.decode_response(body)
    if isinstance(response, v2.ReadResponse | v2.BatchReadResponse) and response.code is Code.EOK:
        response = replaced(response, code=Code.ETOOMANYREQUESTS)  # which carries no entries
    return v2.encode_response(response)


def _light_v3(body: memoryview) -> bytes:
    try:
        response = v3.decode_response(body)
    except EncodingError:
        # The refusal of an unknown version, which it repeats in its first byte: that may be any.
        return frame(body)
    late = Code.ETOOMANYREQUESTS
    if not isinstance(response, v3.StartTlsResponse) and response.code is Code.EOK:
        match response:
            case v3.ReadResponse(txn_id=txn, ledger_id=ledger, entry_id=entry):
                response = v3.ReadResponse(txn, late, ledger, entry)
            case v3.ReadLacResponse(txn_id=txn, ledger_id=ledger):
                response = v3.ReadLacResponse(txn, late, ledger)
            case v3.ListEntriesResponse(txn_id=txn, ledger_id=ledger):
                response = v3.ListEntriesResponse(txn, late, ledger)
    elif isinstance(response, v3.ReadLacResponse | v3.ListEntriesResponse):
        # In limbo they carry what is there beside their code.
        response = type(response)(response.txn_id, response.code, response.ledger_id)
    return v3.encode_response(response)
