"""Dispatch of the frames of one connection in a batch: fast-path requests are handled here, the rest is handed to
Python.

On the fast path are normal adds of hot ledgers with the right master key; recovery adds of version 2 to these and to
ledgers being repaired; and reads, of version 2 and 3, of one entry by its id that fence nothing and wait for nothing.
They change nothing but the entries of the ledger, so they need none of the rules of bookie/admission.py. A ledger is
hot exactly while those rules would admit a normal add with that key. It is being repaired only while they would admit
a recovery add, and no other.
"""

from __future__ import annotations

from collections.abc import Callable

from bkbox.bookie.add_group import AddBatch, AdmittedLedger
from bkbox.bookie.read_group import ReadBatch
from bkbox.native import memory
from bkbox.wire.v3_fast_path import FastRequestV3

_PREFIX_BYTES = 4
_V3_FIRST_BYTE_MIN = 8
_V2_ADD = 0x02010000
_V2_READ = 0x02020000
"""Version, opcode, flags: a normal request."""
_V2_RECOVERY_ADD = 0x02010006
"""The same with the flags of a recovery add, which is urgent."""

_V2_KEY_AT = 4
_V2_ENTRY_AT = 24
_V2_READ_BYTES = 20
_ENTRY_BYTES_MIN = 24
_NO_TXN = 2**64 - 1
_NO_RESPONSE = 2**64 - 2
_FAST_ADD = 1
_FAST_READ = 2

Slow = Callable[[int, int, int], None]
"""Connection, start and end of a body in the area."""


class FrameDispatcher:
    """Dispatches with the hot ledgers of one disk."""

    __slots__ = ("_fast_request", "filled", "hot")

    def __init__(self) -> None:
        self.hot: dict[int, AdmittedLedger] = {}
        """The hot ledgers by id."""
        self.filled: dict[int, AdmittedLedger] = {}
        """The ledgers that accept recovery adds and no others, by id."""
        self._fast_request = FastRequestV3()

    def dispatch(
        self,
        area: memoryview,
        start: int,
        end: int,
        connection: int,
        adds: AddBatch | None,
        reads: ReadBatch,
        slow: Slow,
    ) -> None:
        """Dispatch the whole frames in area[start:end].

        ``adds`` is the batch of ``area``; None if no normal adds are accepted, so that Python refuses them. ``slow``
        is called in the order of arrival, after everything before it was added; it may change ``hot``.
        """
        data = area
        request = self._fast_request
        while end - start > _PREFIX_BYTES:
            body = start + _PREFIX_BYTES
            start = body + memory.u32(data, start)
            if start > end or start <= body:
                raise ValueError("the front-end passed on frames that are not whole")
            if data[body] < _V3_FIRST_BYTE_MIN:
                if start - body >= _V2_READ_BYTES:
                    head = memory.u32(data, body)
                    if head == _V2_ADD or head == _V2_RECOVERY_ADD:  # noqa: SIM109 - two integers in C
                        if (
                            adds is not None
                            and start - body >= _V2_ENTRY_AT + _ENTRY_BYTES_MIN
                            and self._add(
                                data,
                                adds,
                                connection,
                                _NO_TXN,
                                body + _V2_KEY_AT,
                                body + _V2_ENTRY_AT,
                                start,
                                head == _V2_RECOVERY_ADD,
                            )
                        ):
                            continue
                    elif head == _V2_READ and memory.i64(data, body + 12) >= 0:
                        reads.add_v2(
                            connection, 2, memory.i64(data, body + 4), memory.i64(data, body + 12)
                        )
                        continue
            else:
                kind = request.parse(data, body, start)
                if kind == _FAST_ADD:
                    if (
                        adds is not None
                        and request.txn < _NO_RESPONSE
                        and self._add(
                            data,
                            adds,
                            connection,
                            request.txn,
                            request.key_at,
                            request.body_at,
                            request.body_end,
                            False,
                        )
                    ):
                        continue
                elif kind == _FAST_READ and request.entry >= 0:
                    reads.add_v3(connection, request.txn, request.ledger, request.entry)
                    continue
            slow(connection, body, start)

    def _add(
        self,
        data: memoryview,
        adds: AddBatch,
        connection: int,
        txn: int,
        key_at: int,
        entry_at: int,
        entry_end: int,
        recovers: bool,
    ) -> bool:
        """Add it if its ledger is hot, or being repaired by recovery adds, and its key is right."""
        group = self.hot.get(memory.i64(data, entry_at))
        if group is None and recovers:
            group = self.filled.get(memory.i64(data, entry_at))
        if group is None or memory.i64(data, entry_at + 8) < 0:
            return False
        if (
            memory.i64(data, key_at) != group.key_start
            or memory.i64(data, key_at + 8) != group.key_middle
            or memory.i32(data, key_at + 16) != group.key_end
        ):
            return False
        adds.add_from_area(group, connection, txn, entry_at, entry_end - entry_at)
        if recovers:
            adds.recovered += 1
        return True
