"""A log as a readable file: the payloads of its records, one after the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Self

from bkbox.client import arguments
from bkbox.client.log.position import Position
from bkbox.client.log.reader import Record


class LogFile:
    """Reads bytes and lines from records (``Log.read`` or ``Log.tail``), as a binary file does: ``read``, ``readline``,
    ``async for line in file``. ``position``: of the record that gave the last byte; None before the first."""

    def __init__(self, records: AsyncGenerator[Record, None]) -> None:
        self._records = records
        self._buffer = bytearray()
        self._ended = False
        self.position: Position | None = None

    async def read(self, size: int = -1) -> bytes:
        """``size`` bytes, fewer only at the end; negative: everything up to the end. Raises as the records do."""
        size = arguments.integer("size", size)
        while not self._ended and (size < 0 or len(self._buffer) < size):
            await self._more()
        return self._pop(len(self._buffer) if size < 0 else size)

    async def readline(self) -> bytes:
        """A line with its line end; the last one may lack it."""
        begin = 0
        while (end := self._buffer.find(b"\n", begin)) < 0 and not self._ended:
            begin = len(self._buffer)
            await self._more()
        return self._pop(end + 1 if end >= 0 else len(self._buffer))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        line = await self.readline()
        if not line:
            raise StopAsyncIteration
        return line

    async def aclose(self) -> None:
        """Close the iterator of the records."""
        self._ended = True
        await self._records.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    async def _more(self) -> None:
        try:
            record = await anext(self._records)
        except StopAsyncIteration:
            self._ended = True
            return
        self.position = record.position
        self._buffer += record.payload

    def _pop(self, size: int) -> bytes:
        chunk = bytes(self._buffer[:size])
        del self._buffer[:size]
        return chunk
