"""Logs over ledgers: one order of records for ever, one writer at a time, any number of readers.

::

    from bkbox.client import connect
    from bkbox.client.log import Log

    async with connect("sqlite:cluster.db") as client:
        log = Log(client, "orders")
        async with await log.open_writer() as writer:
            position = await writer.append(b"first")
        async for record in log.read():
            print(record.position, record.payload)
"""

from bkbox.client.log.compression import Compression
from bkbox.client.log.file import LogFile
from bkbox.client.log.leader import LeaderElection
from bkbox.client.log.log import Log, LogInfo, LostLedger, logs
from bkbox.client.log.options import LogOptions
from bkbox.client.log.position import Position
from bkbox.client.log.reader import Record
from bkbox.client.log.writer import LogWriter

__all__ = [
    "Log",
    "LogWriter",
    "LogOptions",
    "LogInfo",
    "LostLedger",
    "Record",
    "Position",
    "Compression",
    "LeaderElection",
    "LogFile",
    "logs",
]
