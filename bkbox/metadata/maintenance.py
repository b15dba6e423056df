"""Maintenance windows: bookies that an operator has taken down for a while and that must not be repaired meanwhile.

A window ends at a stored time; after that the entry has no effect for any reader. bkbox's auditors do not treat a
bookie as lost during its window. Java's auditors do not know the windows. For them the cluster-wide delay before the
repair of a lost bookie is raised if it was shorter, and restored by the process that ends the last window, or finds
it over. If no process does, Java's auditors repair later than configured, but they do repair. That is why the delay
is used, and not the switch that turns repair off.

Times are wall-clock milliseconds; hosts whose clocks differ end a window at different times.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod

from bkbox.base.ids import BookieId
from bkbox.base.values import frozen_struct
from bkbox.errors import EncodingError
from bkbox.metadata.underreplication import UnderReplication

MAINTENANCE_S_MAX = 86_400
"""Longest window, so that a typing error does not keep a bookie unrepaired for longer."""

_FORMAT = 1


@frozen_struct
class MaintenanceWindow:
    """``until_ms``: the end. ``delay_s``: the delay that was set for Java's auditors, None if that was not needed;
    ``delay_before_s``: the delay before.
    """

    until_ms: int
    delay_s: int | None = None
    delay_before_s: int = 0


class MaintenanceWindows(ABC):
    """The maintenance windows of one cluster, expired ones included. Every method raises MetadataError."""

    java: UnderReplication | None
    """The settings of Java's auditors in the same cluster; None if there can be none."""

    @abstractmethod
    async def all(self) -> dict[BookieId, MaintenanceWindow]:
        """Every bookie with a stored window."""

    @abstractmethod
    async def put(self, bookie: BookieId, window: MaintenanceWindow) -> None:
        """Store a window, replacing the present one."""

    @abstractmethod
    async def remove(self, bookie: BookieId) -> None:
        """Remove a window; succeeds if there is none."""


async def in_maintenance(windows: MaintenanceWindows, now_ms: int) -> frozenset[BookieId]:
    """The bookies in a maintenance window now: they are not lost, whatever the lists of bookies say."""
    return frozenset(
        bookie for bookie, window in (await windows.all()).items() if now_ms < window.until_ms
    )


async def begin(
    windows: MaintenanceWindows, bookie: BookieId, seconds: int, now_ms: int
) -> MaintenanceWindow:
    """Begin a maintenance window of a bookie now, for this duration; replaces a present one."""
    until_ms = now_ms + seconds * 1000
    if windows.java is None:
        window = MaintenanceWindow(until_ms)
        await windows.put(bookie, window)
        return window
    found = await windows.java.recovery_delay()
    present_s = found.seconds if found is not None else 0
    ours = [each for each in (await windows.all()).values() if each.delay_s == present_s]
    delay_s = max(seconds, present_s)
    window = MaintenanceWindow(until_ms, delay_s, ours[0].delay_before_s if ours else present_s)
    await windows.put(
        bookie, window
    )  # first: a delay without a stored window would never be restored
    if delay_s != present_s:  # writing the same value again would tell Java's auditor to begin
        await windows.java.set_recovery_delay_s(delay_s)
    return window


async def end(windows: MaintenanceWindows, bookie: BookieId, now_ms: int) -> bool:
    """End a bookie's window; True if it had one. The delay is restored with the last window, unless it was changed
    meanwhile.
    """
    found = await windows.all()
    window = found.pop(bookie, None)
    if window is None:
        return False
    others = [each for each in found.values() if now_ms < each.until_ms]
    if windows.java is not None and not others and window.delay_s != window.delay_before_s:
        present = await windows.java.recovery_delay()
        if present is not None and present.seconds == window.delay_s:
            await windows.java.set_recovery_delay_s(window.delay_before_s)
    await windows.remove(bookie)
    return True


async def end_expired(windows: MaintenanceWindows, now_ms: int) -> None:
    """Remove expired windows. Any process may do this at any time."""
    for bookie, window in (await windows.all()).items():
        if window.until_ms <= now_ms:
            await end(windows, bookie, now_ms)


def encode(window: MaintenanceWindow) -> bytes:
    fields = {
        "format": _FORMAT,
        "until_ms": window.until_ms,
        "delay_s": window.delay_s,
        "delay_before_s": window.delay_before_s,
    }
    return json.dumps(fields, sort_keys=True).encode()


def decode(data: bytes) -> MaintenanceWindow:
    """Decode a stored window. Raises EncodingError."""
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise EncodingError(f"a maintenance window is not JSON: {error}") from None
    match fields:
        case {
            "format": 1,
            "until_ms": int(until_ms),
            "delay_s": int() | None as delay_s,
            "delay_before_s": int(delay_before_s),
        }:
            return MaintenanceWindow(until_ms, delay_s, delay_before_s)
        case _:
            raise EncodingError(
                "a maintenance window is not in a form that this version of bkbox reads"
            )
