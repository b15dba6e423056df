"""The asyncio client: ``connect``, and the handles that it gives."""

from bkbox.client.client import Client, connect
from bkbox.client.ledger.reader import Entry, LedgerReader
from bkbox.client.ledger.writer import LedgerWriter
from bkbox.client.options import ClientOptions, ConnectOptions
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.metadata.ledger import DigestType, LedgerMetadata, LedgerState

__all__ = [
    "connect",
    "Client",
    "ClientOptions",
    "ConnectOptions",
    "LedgerWriter",
    "LedgerReader",
    "Entry",
    "VerifiedEntry",
    "DigestType",
    "LedgerMetadata",
    "LedgerState",
]
