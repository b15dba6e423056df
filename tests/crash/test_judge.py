"""The judge of the load can say no: every kind of violation is noticed."""

from __future__ import annotations

import pytest

from tests.crash.load import (
    ADD,
    READ,
    Denied,
    Entry,
    FenceLost,
    Load,
    Pending,
    Violation,
    WrongBytes,
    payload,
)
from tests.harness import raw


def test_the_judge_notices() -> None:
    """Every kind of violation is one, on answers made up here."""
    load = Load(1, 1)
    ledger = next(iter(load.ledgers.values()))
    ledger.entries[0] = Entry(sent=2)
    load.judge(ADD, Pending(ledger, 0, version=0), raw.EOK, b"")

    def data(version: int) -> bytes:
        return raw.make_entry(ledger.id, 0, payload(ledger.id, 0, version))

    read = Pending(ledger, 0, acked=0, highest=0, known=True)
    load.judge(READ, read, raw.EOK, data(0))
    load.judge(READ, read, raw.EOK, data(1))
    load.judge(READ, read, raw.EIO, b"")
    wrong = [
        (Denied, READ, read, raw.ENOENTRY, b""),
        (Denied, READ, read, raw.ENOLEDGER, b""),
        (WrongBytes, READ, read, raw.EOK, data(2)),
        (WrongBytes, READ, read, raw.EOK, data(0)[:-1] + b"x"),
        (WrongBytes, READ, read, raw.EOK, raw.make_entry(ledger.id, 0, b"probe")),
        (WrongBytes, READ, Pending(ledger, 0, acked=1), raw.EOK, data(0)),
        (Denied, READ, Pending(ledger, -1, highest=5), raw.EOK, data(0)),
        (Violation, ADD, Pending(ledger, 0, version=1), raw.EFENCED, b""),
        (FenceLost, ADD, Pending(ledger, 0, version=1, fenced=True), raw.EOK, b""),
        (Violation, ADD, Pending(ledger, 0, version=1, recovery=True), raw.EFENCED, b""),
    ]
    for kind, opcode, pending, code, body in wrong:
        with pytest.raises(Violation) as raised:
            load.judge(opcode, pending, code, body)
        assert type(raised.value) is kind
