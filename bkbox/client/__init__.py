"""The asyncio client: ``connect``, and the handles it leads to."""

from bkbox.client.client import Client, connect
from bkbox.client.options import ClientOptions
from bkbox.client.reader import Entry, LedgerReader
from bkbox.client.writer import LedgerWriter

__all__ = ["connect", "Client", "ClientOptions", "LedgerWriter", "LedgerReader", "Entry"]
