"""The client for callers without an event loop: it runs the asyncio client on a thread."""

from __future__ import annotations

from bkbox.client.sync.client import Client, LedgerReader, LedgerWriter, connect
from bkbox.client.sync.log import Log, LogWriter

__all__ = ["connect", "Client", "LedgerWriter", "LedgerReader", "Log", "LogWriter"]
