"""Quota state as the repair worker reports it: kept for the status document, and for each front-end that starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.repair import OverQuota, QuotaUse

if TYPE_CHECKING:
    from bkbox.config.schema import Config
    from bkbox.supervisor.children.child_group import ChildGroup

    class QuotaBookie(Protocol):
        """The part of the supervisor that quotas use."""

        config: Config

        @property
        def frontends(self) -> ChildGroup: ...


class QuotaState:
    """The repair worker's last report; it stays valid while the worker is absent or cannot tell.

    ``use``: usage by owner; ``problem``: of the last inspection.
    """

    def __init__(self, bookie: QuotaBookie) -> None:
        self._bookie = bookie
        self.use = QuotaUse()
        self._pages: list[bytes] = []
        self._coming: list[bytes] = []

    def receive(self, message: Message) -> None:
        """Takes one of QUOTA_NEWS. A message from a repair worker that does not know yet that quotas were removed is
        ignored."""
        if not self._bookie.config.quotas:
            return
        if isinstance(message, QuotaUse):
            if message.problem:
                before = self.use
                message.owners, message.unlisted_owners = before.owners, before.unlisted_owners
                message.checked_ms = before.checked_ms
            self.use = message
        elif isinstance(message, OverQuota):
            self._coming.append(message.payload)
            if not message.more:
                self._pages, self._coming = self._coming, []
                self._tell()

    def begin(self) -> None:
        """A new repair worker has started and reports everything again."""
        self._coming = []

    def configured(self) -> None:
        """The configuration has changed."""
        if not self._bookie.config.quotas:
            self.use, self._pages, self._coming = QuotaUse(), [b""], []
            self._tell()

    def pages(self) -> list[OverQuota]:
        """The ledgers that accept no adds, as a front-end is told them."""
        last = len(self._pages)
        return [
            OverQuota(more=number < last, payload=page)
            for number, page in enumerate(self._pages, start=1)
        ]

    def _tell(self) -> None:
        for page in self.pages():
            self._bookie.frontends.send(page)
