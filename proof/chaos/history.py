"""The history of a run: a file with one JSON document a line, in the order of events.

Every line has ``t`` (seconds since the run began, by the wall clock) and ``kind``:

==========  ================================================================================================
kind        other keys
==========  ================================================================================================
run         first line: ``seed``, ``bookies``, ``disks``, ``ack_after``, ``start`` (s since 1970)
begin       of an operation: ``id``, ``op``, ``by`` (client), and its arguments
end         of it: ``id``, ``op``, ``outcome`` (ok, refused, unknown), and its result; ``error``
found       entries returned by a read: ``id``, ``by``, ``ledger``, ``first``, ``digests`` (of consecutive entries)
metadata    a change in the metadata store: ``ledger``, ``version`` (null: deleted), ``state``, ``last``,
            ``sizes`` (E, WQ, AQ), ``fragments`` (first entry, ensemble)
holds       the entries that a bookie has at the end: ``bookie``, ``ledger``, ``ranges`` (first, last)
look        a bookie's status, if it has changed: ``bookie``, ``pid``, ``restarts``, ``limbo``, ``done``
ended       a process ended by itself: ``bookie``, ``what``
skipped     a scheduled fault that was not permitted then: ``fault``, ``bookie``, ``why``
finished    everything was healed and read: ``well`` (in time), ``down`` (bookies), ``limbo`` (ledgers), ``deaths``
            (bookie, line of its log)
==========  ================================================================================================

Operations of clients are ``create``, ``add``, ``close``, ``recover``, ``lac``, ``read``, ``tail``, ``delete``; ``boot``
and ``stop`` are of bookies, and ``fault`` is an injected fault. An operation without an end was in flight when the
run ended: its outcome is unknown. Lines are in the order of time, except ``metadata`` lines, which are
collected and come later: ``in_order`` sorts them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from bkbox.errors import CallerError

Line = dict[str, Any]
Outcome = Literal["ok", "refused", "unknown"]

_METADATA_MARK = '"kind":"metadata"'


class History:
    """Writes a history. ``clock``: seconds since 1970."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self.path = path
        self.start = clock()
        self.counts: Counter[str] = Counter()
        """Operations that succeeded, and kinds of lines, for progress output."""
        self._clock = clock
        self._file = path.open("x", encoding="utf-8")
        self._next = 0
        self._ops: dict[int, str] = {}

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self.start

    def begin(self, op: str, **what: Any) -> int:
        """Records the begin of an operation; returns its id."""
        self._next += 1
        self._ops[self._next] = op
        self.note("begin", id=self._next, op=op, **what)
        return self._next

    def end(self, op_id: int, outcome: Outcome, **what: Any) -> None:
        op = self._ops.pop(op_id)
        if outcome == "ok":
            self.counts[op] += 1
        self.note("end", id=op_id, op=op, outcome=outcome, **what)

    def note(self, kind: str, *, t: float | None = None, **what: Any) -> None:
        """Records a line of any kind; ``t`` if it is not of now."""
        self.counts[kind] += 1
        line = {"t": round(self.now if t is None else t, 4), "kind": kind, **what}
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def in_order(path: Path) -> Iterator[Line]:
    """The lines of a file in the order of time. A truncated last line is left out. Raises CallerError."""
    changes = sorted(_lines(path, metadata=True), key=lambda line: float(line["t"]))
    position = 0
    for line in _lines(path, metadata=False):
        while position < len(changes) and changes[position]["t"] <= line["t"]:
            yield changes[position]
            position += 1
        yield line
    yield from changes[position:]


def _lines(path: Path, *, metadata: bool) -> Iterator[Line]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                if not text.endswith("\n"):
                    return
                if (_METADATA_MARK in text) is metadata:
                    yield _parsed(path, number, text)
    except OSError as error:
        raise CallerError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CallerError(f"{path} is not a history: {error}") from error


def _parsed(path: Path, number: int, text: str) -> Line:
    try:
        line = json.loads(text)
    except ValueError as error:
        raise CallerError(f"{path}:{number} is not JSON: {error}") from None
    if not isinstance(line, dict) or not isinstance(line.get("t"), int | float):
        raise CallerError(f"{path}:{number} is not a line of a history")
    return line
