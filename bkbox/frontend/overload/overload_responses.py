"""Lightened responses for a client that does not read them: their payload is dropped and the client may retry.

A response of only a code and ids stays as it is: it reports what was done. A response that found something is replaced
by ETOOMANYREQUESTS, and the client may ask again.
"""

from __future__ import annotations

from bkbox.base.values import replaced
from bkbox.errors import EncodingError
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.frames import bodies, frame


def without_entries(frames: bytes | memoryview) -> bytes:
    """Converts whole frames, of either version, to whole frames without entries."""
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
        # The refusal of an unknown version repeats that version in its first byte, which may be any.
        return frame(body)
    too_many = Code.ETOOMANYREQUESTS
    if not isinstance(response, v3.StartTlsResponse) and response.code is Code.EOK:
        match response:
            case v3.ReadResponse(txn_id=txn, ledger_id=ledger, entry_id=entry):
                response = v3.ReadResponse(txn, too_many, ledger, entry)
            case v3.ReadLacResponse(txn_id=txn, ledger_id=ledger):
                response = v3.ReadLacResponse(txn, too_many, ledger)
            case v3.ListEntriesResponse(txn_id=txn, ledger_id=ledger):
                response = v3.ListEntriesResponse(txn, too_many, ledger)
    elif isinstance(response, v3.ReadLacResponse | v3.ListEntriesResponse):
        # For a ledger in limbo they carry what the disk has, beside an error code.
        response = type(response)(response.txn_id, response.code, response.ledger_id)
    return v3.encode_response(response)
