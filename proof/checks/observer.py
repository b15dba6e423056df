"""Passes observations on to the checks that override them, and keeps the first violation."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from proof.checks.check import Check, Metadata, Violation


class Observer:
    """See ``Check`` for the observations. ``on_violation`` is called once."""

    def __init__(self, checks: Sequence[Check], on_violation: Callable[[Violation], None]) -> None:
        self.violation: Violation | None = None
        self._on_violation = on_violation
        self._listeners: dict[str, list[tuple[str, Callable[..., str | None]]]] = {
            name: [
                (check.name, getattr(check, name))
                for check in checks
                if name in type(check).__dict__
            ]
            for name, item in vars(Check).items()
            if callable(item)
        }

    def _tell(self, observation: str, *values: Any) -> None:
        for name, listener in self._listeners[observation]:
            words = listener(*values)
            if words is not None:
                self.fail(name, words)

    def fail(self, name: str, words: str) -> None:
        if self.violation is None:
            self.violation = Violation(name, words)
            self._on_violation(self.violation)

    def created(self, ledger: int, deferred: bool) -> None:
        self._tell("created", ledger, deferred)

    def appended(self, ledger: int, entry: int, payload: bytes) -> None:
        self._tell("appended", ledger, entry, payload)

    def acknowledged(self, ledger: int, entry: int) -> None:
        self._tell("acknowledged", ledger, entry)

    def confirmed(self, ledger: int, last: int) -> None:
        self._tell("confirmed", ledger, last)

    def ended(self, client: str, ledger: int, last: int) -> None:
        self._tell("ended", client, ledger, last)

    def found(self, client: str, ledger: int, entry: int, payload: bytes) -> None:
        self._tell("found", client, ledger, entry, payload)

    def absent(self, client: str, ledger: int, entry: int) -> None:
        self._tell("absent", client, ledger, entry)

    def heard_lac(self, reader: str, ledger: int, lac: int) -> None:
        self._tell("heard_lac", reader, ledger, lac)

    def stored_metadata(self, now: Metadata) -> None:
        self._tell("stored_metadata", now)

    def deleted(self, ledger: int) -> None:
        self._tell("deleted", ledger)

    def stored(self, bookie: str, ledger: int, entry: int, ordinary: bool, deferred: bool) -> None:
        self._tell("stored", bookie, ledger, entry, ordinary, deferred)

    def forced(self, bookie: str, ledger: int, entry: int) -> None:
        self._tell("forced", bookie, ledger, entry)

    def emptied(self, bookie: str, ledger: int) -> None:
        self._tell("emptied", bookie, ledger)

    def denied(self, bookie: str, ledger: int, entry: int) -> None:
        self._tell("denied", bookie, ledger, entry)

    def fenced(self, bookie: str, ledger: int) -> None:
        self._tell("fenced", bookie, ledger)

    def entered_limbo(self, bookie: str, ledger: int) -> None:
        self._tell("entered_limbo", bookie, ledger)

    def left_limbo(self, bookie: str, ledger: int, readable: Callable[[int], bool]) -> None:
        self._tell("left_limbo", bookie, ledger, readable)

    def vouched(
        self,
        bookie: str,
        vouches: Callable[[int], Container[int] | None],
        keeps_fence: Callable[[int], bool],
    ) -> None:
        self._tell("vouched", bookie, vouches, keeps_fence)

    def finished(self) -> None:
        self._tell("finished")
