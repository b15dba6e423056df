"""Polls the bookies of a cluster side by side: none of them delays another, and one that does not answer stays.

At most one poll of a bookie is in flight, and each ends within TIMEOUT_S. A bookie is silent once its poll has failed
or has taken longer than SLOW_S, also if its port alone answered in the end; the first poll may take FIRST_S, since a
bookie loads its admin API for its first client. If the list of members cannot be read, or takes longer than SLOW_S, the
last one stands. Time for which this process itself did not run is charged to no bookie.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace

from bkbox.api.admin.cluster_members import DOWN, Member
from bkbox.api.cluster.rows import BookieRow, Report, row_of
from bkbox.base.text import fault_text
from bkbox.errors import BkboxError

_log = logging.getLogger(__name__)

SLOW_S = 1.1
FIRST_S = 1.9
TIMEOUT_S = 5.0
LATE_S = 1.0
"""More time than this between two looks at the watch, which is looked at twice a second, is its own delay."""
IN_FLIGHT_MAX = 64
_NO_LIST = "the metadata store does not answer"

ListMembers = Callable[[], Awaitable[Sequence[Member]]]
Ask = Callable[[Member], Awaitable[Report | None]]
"""The bookie's report; None if there is no way to ask it. Raises BkboxError."""


@dataclass(slots=True)
class _Poll:
    """``since_s``: when a bookie answered last, or was first seen; ``polled_s``: when the poll in flight was sent."""

    member: Member
    since_s: float
    task: asyncio.Task[None] | None = None
    polled_s: float = 0.0
    report: Report | None = None
    failure: str = ""

    @property
    def is_first(self) -> bool:
        return self.report is None and not self.failure and self.member.mode != DOWN


class ClusterWatch:
    """``poll`` starts what is due, ``rows`` is what is known at any time. ``clock``: monotonic seconds; ``on_answer``:
    called whenever there is something new."""

    def __init__(self, members: ListMembers, ask: Ask, clock: Callable[[], float]) -> None:
        self._members = members
        self._ask = ask
        self._clock = clock
        self._polls: dict[str, _Poll] = {}
        self._listing: asyncio.Task[None] | None = None
        self._listing_since_s = 0.0
        self._listed_s: float | None = None
        self._started_s = self._looked_s = clock()
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._problem = ""
        self.on_answer: Callable[[], None] = lambda: None

    def poll(self) -> None:
        """Asks for the members, and each member that is not being asked already."""
        self._forgive_own_delay()
        if self._listing is None or self._listing.done():
            self._listing, self._listing_since_s = self._task(self._list()), self._clock()
        for poll in self._polls.values():
            self._begin(poll)

    async def finish(self) -> None:
        """Waits until all that was asked has answered, or timed out."""
        if self._listing is not None:
            await self._listing
        await asyncio.gather(*(poll.task for poll in self._polls.values() if poll.task is not None))

    def rows(self) -> list[BookieRow]:
        """All bookies, by id."""
        self._forgive_own_delay()
        now = self._clock()
        return [self._row(self._polls[key], now) for key in sorted(self._polls)]

    @property
    def problem(self) -> str:
        """Why the list of members may be old, or is missing; "" if it is new."""
        in_flight = self._listing is not None and not self._listing.done()
        slow = in_flight and self._clock() - self._listing_since_s > SLOW_S
        problem = self._problem or (_NO_LIST if slow else "")
        if not problem:
            return ""
        since_s = self._started_s if self._listed_s is None else self._listed_s
        return f"{problem}; the last list is {self._clock() - since_s:.0f} s old"

    def _forgive_own_delay(self) -> None:
        now = self._clock()
        late_s = now - self._looked_s - LATE_S
        self._looked_s = now
        if late_s > 0:
            self._listing_since_s += late_s
            for poll in self._polls.values():
                poll.polled_s += late_s

    async def close(self) -> None:
        tasks = [poll.task for poll in self._polls.values()]
        pending = [each for each in (self._listing, *tasks) if each is not None and not each.done()]
        for each in pending:
            each.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    # ---- polls ----------------------------------------------------------------------------------

    async def _list(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                found = {each.id: each for each in await self._members()}
        except BkboxError as error:
            self._problem = str(error)
            return
        except TimeoutError:
            self._problem = _NO_LIST
            return
        except Exception as error:  # noqa: BLE001 - what was known before must not pass for new
            self._problem = _noted_fault(error, self._problem, "the list of bookies")
            return
        self._problem, self._listed_s = "", self._clock()
        for bookie in self._polls.keys() - found.keys():
            task = self._polls.pop(bookie).task
            if task is not None:
                task.cancel()
        for bookie, member in found.items():
            poll = self._polls.get(bookie)
            if poll is None:
                poll = self._polls[bookie] = _Poll(member, self._clock())
                self._begin(poll)
            has_registered = poll.member.mode == DOWN != member.mode
            poll.member = _with_last_address(member, poll.member)
            if has_registered and (poll.failure or poll.report is None):
                self._begin_anew(poll)

    def _begin(self, poll: _Poll) -> None:
        if poll.task is None or poll.task.done():
            poll.polled_s = math.inf
            poll.task = self._task(self._poll(poll))

    def _begin_anew(self, poll: _Poll) -> None:
        """What was found while it was not registered says nothing of it any more."""
        if poll.task is not None:
            poll.task.cancel()
        poll.task, poll.report, poll.failure, poll.since_s = None, None, "", self._clock()
        self._begin(poll)

    def _task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _task: self.on_answer())
        return task

    async def _poll(self, poll: _Poll) -> None:
        async with self._slots:
            poll.polled_s = self._clock()
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    report = await self._ask(poll.member)
            except BkboxError as error:
                poll.failure = str(error)
                return
            except TimeoutError:
                poll.failure = "it does not answer"
                return
            except Exception as error:  # noqa: BLE001 - what was known before must not pass for new
                poll.failure = _noted_fault(error, poll.failure, f"bookie {poll.member.id}")
                return
        poll.report, poll.failure = report, ""
        if report is not None and not report.state and self._clock() - poll.polled_s > SLOW_S:
            poll.failure = "; ".join(report.problems)  # its status hangs, its port answers
        if not poll.failure:
            poll.since_s = self._clock()

    def _row(self, poll: _Poll, now: float) -> BookieRow:
        in_flight = poll.task is not None and not poll.task.done()
        slow = in_flight and now - poll.polled_s > (FIRST_S if poll.is_first else SLOW_S)
        silent_s = now - poll.since_s if poll.failure or slow else None
        return row_of(poll.member, poll.report, silent_s, poll.failure)


def _noted_fault(error: Exception, before: str, what: str) -> str:
    """The text of a fault, which is logged unless the poll ``before`` met the same one."""
    text = fault_text(error)
    if text != before:
        _log.error("%s cannot be looked at", what, exc_info=error)
    return text


def _with_last_address(member: Member, before: Member) -> Member:
    """A bookie that has lost its registration may still answer where it answered before."""
    if member.mode != DOWN:
        return member
    return replace(before, mode=DOWN)
