"""The result of ``connect``: a context manager, which raises a helpful error if it is used as something else."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from bkbox.errors import NotConnectedError

T = TypeVar("T")


class Connecting(AbstractAsyncContextManager[T], Generic[T]):
    """A connection that ``async with`` opens and closes."""

    def __init__(self, opened: AbstractAsyncContextManager[T]) -> None:
        self._opened = opened

    async def __aenter__(self) -> T:
        return await self._opened.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._opened.__aexit__(kind, error, traceback)

    if not TYPE_CHECKING:  # type checkers report it themselves

        def __await__(self) -> NoReturn:
            raise NotConnectedError(_TEXT)

        def __enter__(self) -> NoReturn:
            raise NotConnectedError(_TEXT)

        def __exit__(self, *_: object) -> None: ...

        def __getattr__(self, name: str) -> NoReturn:
            raise NotConnectedError(f"no {name} yet: {_TEXT}")


_TEXT = (
    "connect() is entered first: `async with bkbox.connect(uri) as client:`, "
    "or `with bkbox.client.sync.connect(uri) as client:` where there is no event loop"
)
