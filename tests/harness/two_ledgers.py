"""Two ledgers on a bookie, one of them fenced, whose entries are known."""

from __future__ import annotations

from tests.harness.cluster import NOBODY, create_ledgers, ledger_of
from tests.harness.processes import BookieProcess
from tests.harness.raw import EOK, RawClient, add_frame, payload_of

FENCED_LEDGER, OPEN_LEDGER = 1, 2
ENTRIES = 50
"""The archives of tests/e2e/olddisks hold as many, with these payloads: neither changes."""


def payload(ledger: int, entry: int) -> bytes:
    return b"<%d/%d>" % (ledger, entry) * 20


def fill(bookie: BookieProcess, bookie_id: str = "") -> None:
    """Create both, and write their entries. ``bookie_id``, if it is not host and port."""
    ensemble = [bookie_id or bookie.bookie_id, NOBODY]
    create_ledgers(bookie.metadata, [ledger_of(n, ensemble) for n in (FENCED_LEDGER, OPEN_LEDGER)])
    with RawClient(bookie.port) as client:
        for ledger in (FENCED_LEDGER, OPEN_LEDGER):
            client.send(b"".join(add_frame(ledger, n, payload(ledger, n)) for n in range(ENTRIES)))
            assert {client.answer().code for _ in range(ENTRIES)} == {EOK}
        assert client.fence(FENCED_LEDGER).code == EOK


def assert_entries(client: RawClient) -> None:
    """Each entry is there, byte for byte."""
    for ledger in (FENCED_LEDGER, OPEN_LEDGER):
        for entry in range(ENTRIES):
            answer = client.read(ledger, entry)
            assert (answer.code, payload_of(answer.body)) == (EOK, payload(ledger, entry))
