"""The asyncio client: ``connect``, and the handles it leads to."""

from bkbox.client.client import Client, connect
from bkbox.client.options import ClientOptions, ConnectOptions
from bkbox.client.reader import Entry, LedgerReader
from bkbox.client.writer import LedgerWriter
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.ledger import DigestType, LedgerMetadata, LedgerState

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
