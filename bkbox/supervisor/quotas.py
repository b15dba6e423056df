"""What the repair worker found out about quotas: kept for the status document, and for each front-end that begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bkbox.ipc.messages import Message, OverQuota, QuotaUse

if TYPE_CHECKING:
    from bkbox.config.schema import Config
    from bkbox.supervisor.children.process import Child

    class QuotaBookie(Protocol):
        """What quotas need of the supervisor."""

        config: Config
        frontend: Child | None


class QuotaState:
    """The last word of the repair worker; it stands while that one is away, or does not know better.

    ``use``: who has how much; ``problem`` is that of the last look.
    """

    def __init__(self, bookie: QuotaBookie) -> None:
        self._bookie = bookie
        self.use = QuotaUse()
        self._pages: list[bytes] = []
        self._coming: list[bytes] = []

    def take(self, message: Message) -> None:
        """OverQuota or QuotaUse. Those of a repair worker that has not heard yet that there are no quotas any more, are
        none."""
        if not self._bookie.config.quotas:
            return
        if isinstance(message, QuotaUse):
            if message.problem:
                before = self.use
                message.owners, message.others = before.owners, before.others
                message.looked_ms = before.looked_ms
            self.use = message
        elif isinstance(message, OverQuota):
            self._coming.append(message.payload)
            if not message.more:
                self._pages, self._coming = self._coming, []
                self.tell()

    def begin(self) -> None:
        """There is a new repair worker, which begins anew with what it has to say."""
        self._coming = []

    def configured(self) -> None:
        """The configuration has changed."""
        if not self._bookie.config.quotas:
            self.use, self._pages, self._coming = QuotaUse(), [b""], []
            self.tell()

    def tell(self) -> None:
        """Send the ledgers that take no adds to the front-end."""
        frontend = self._bookie.frontend
        if frontend is not None and frontend.running:
            for number, page in enumerate(self._pages, start=1):
                message = OverQuota(more=number < len(self._pages), payload=page)
                frontend.control.send(message)
