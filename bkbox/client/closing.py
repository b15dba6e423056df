"""The behaviour of ``async with`` on writers, of ledgers and of logs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from bkbox.errors import BkboxError


class ClosedAtEnd(ABC):
    """A writer that is closed at the end of its context, and abandoned if closing fails."""

    @property
    @abstractmethod
    def failure(self) -> BaseException | None:
        """The error that ended the writer; None while it has not ended."""

    @abstractmethod
    async def close(self) -> object: ...

    @abstractmethod
    async def abort(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: object, error: BaseException | None, _traceback: object
    ) -> None:
        """Raises the error that ended the writer, unless the block itself raised one."""
        failure: BaseException | None = None
        try:
            try:
                await self.close()
                failure = self.failure
            finally:
                await self.abort()
        except BkboxError as close_error:
            if error is None:
                raise
            error.add_note(f"closing it failed as well: {close_error}")
        if error is None and failure is not None:
            raise failure
