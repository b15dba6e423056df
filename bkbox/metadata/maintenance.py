"""Bookies that an operator has taken down for a while and that must not be repaired meanwhile.

A bookie *rests* until a moment that is written down; after that the entry says nothing any more, whoever
looks. Auditors of bkbox take no bookie for lost while it rests. Java's know nothing of that: for them the whole
cluster's delay before the repair of a lost bookie is raised where it was shorter, and put back by whoever ends the
last rest, or finds it over. Should nobody be there to do so, Java's auditors repair later than they were told to,
but they do: that is why the delay is used for it, and not the switch that turns repair off.

Moments are wall-clock milliseconds; hosts whose clocks differ end a rest at different times.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod

from bkbox.base.ids import BookieId
from bkbox.base.values import frozen_struct
from bkbox.errors import EncodingError
from bkbox.metadata.underreplication import UnderReplication

REST_S_MAX = 86_400
"""Longest rest: nobody forgets a bookie for longer because of a typing error."""

_FORMAT = 1


@frozen_struct
class MaintenanceWindow:
    """``until_ms``: when it is over. ``delay_s``: the delay that was set for Java's auditors, None where that was not
    needed; ``delay_before_s``: what it was before.
    """

    until_ms: int
    delay_s: int | None = None
    delay_before_s: int = 0


class MaintenanceWindows(ABC):
    """The rests of one cluster, those that are over included. Every method raises MetadataError."""

    java: UnderReplication | None
    """Where auditors of Java look, that share the cluster; None where there can be none."""

    @abstractmethod
    async def all(self) -> dict[BookieId, MaintenanceWindow]:
        """Every bookie for which a rest is written down."""

    @abstractmethod
    async def put(self, bookie: BookieId, rest: MaintenanceWindow) -> None:
        """Write a rest down, in the place of one that is there."""

    @abstractmethod
    async def remove(self, bookie: BookieId) -> None:
        """One that is not there counts as removed."""


async def resting(rests: MaintenanceWindows, now_ms: int) -> frozenset[BookieId]:
    """The bookies that rest now: they are not lost, whatever the lists of bookies say."""
    return frozenset(
        bookie for bookie, rest in (await rests.all()).items() if now_ms < rest.until_ms
    )


async def begin(
    rests: MaintenanceWindows, bookie: BookieId, seconds: int, now_ms: int
) -> MaintenanceWindow:
    """Let a bookie rest from now on, for so long; a rest that it has is changed."""
    until_ms = now_ms + seconds * 1000
    if rests.java is None:
        rest = MaintenanceWindow(until_ms)
        await rests.put(bookie, rest)
        return rest
    found = await rests.java.recovery_delay()
    present_s = found.seconds if found is not None else 0
    ours = [each for each in (await rests.all()).values() if each.delay_s == present_s]
    delay_s = max(seconds, present_s)
    rest = MaintenanceWindow(until_ms, delay_s, ours[0].delay_before_s if ours else present_s)
    await rests.put(bookie, rest)  # first: what nobody has written down, nobody puts back
    if delay_s != present_s:  # the same value again would tell Java's auditor to begin
        await rests.java.set_recovery_delay_s(delay_s)
    return rest


async def end(rests: MaintenanceWindows, bookie: BookieId, now_ms: int) -> bool:
    """End the rest of a bookie; whether it had one. The delay is put back with the last one, unless somebody has
    changed it meanwhile.
    """
    found = await rests.all()
    rest = found.pop(bookie, None)
    if rest is None:
        return False
    others = [each for each in found.values() if now_ms < each.until_ms]
    if rests.java is not None and not others and rest.delay_s != rest.delay_before_s:
        present = await rests.java.recovery_delay()
        if present is not None and present.seconds == rest.delay_s:
            await rests.java.set_recovery_delay_s(rest.delay_before_s)
    await rests.remove(bookie)
    return True


async def end_those_over(rests: MaintenanceWindows, now_ms: int) -> None:
    """What is over is taken away. Anyone may do this at any time."""
    for bookie, rest in (await rests.all()).items():
        if rest.until_ms <= now_ms:
            await end(rests, bookie, now_ms)


def encode(rest: MaintenanceWindow) -> bytes:
    fields = {
        "format": _FORMAT,
        "until_ms": rest.until_ms,
        "delay_s": rest.delay_s,
        "delay_before_s": rest.delay_before_s,
    }
    return json.dumps(fields, sort_keys=True).encode()


def decode(data: bytes) -> MaintenanceWindow:
    """Raises EncodingError."""
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise EncodingError(f"a rest is not JSON: {error}") from None
    match fields:
        case {
            "format": 1,
            "until_ms": int(until_ms),
            "delay_s": int() | None as delay_s,
            "delay_before_s": int(delay_before_s),
        }:
            return MaintenanceWindow(until_ms, delay_s, delay_before_s)
        case _:
            raise EncodingError("a rest is not in a form that this version of bkbox reads")
