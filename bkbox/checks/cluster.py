"""The checks of the metadata store: what binds it to the disks, and what it says of other bookies."""

from __future__ import annotations

import time
from collections.abc import Collection

from bkbox.base.commandline import bookie_command, cluster_command
from bkbox.base.ids import BookieId
from bkbox.checks.registry import COOKIES, METADATA_STORE, NO_START, POWER, Finding
from bkbox.config.schema import Config
from bkbox.errors import BkboxError
from bkbox.metadata import connect
from bkbox.supervisor.boot import power_domain
from bkbox.supervisor.boot.cookie_repair import inspect

SLOW_S = 1.0


async def store(
    config: Config, wait_s: float, *, running: bool, unusable: Collection[str]
) -> list[Finding]:
    """Checks that the metadata store answers, knows the bookie, agrees with the disks, and knows of bookies that lose
    power apart. Changes nothing.

    ``unusable``: folders of which a finding tells already; where no cookie differs but theirs, nothing is added.
    """
    began = time.monotonic()
    try:
        async with await connect(config.metadata, min(wait_s, config.metadata_wait_s)) as opened:
            instance_id = await opened.instance_id()
            registered = BookieId(config.bookie_id) in await opened.bookies()
        took_s = time.monotonic() - began
    except BkboxError as error:
        return [METADATA_STORE.fail(str(error), config.metadata)]
    if took_s > SLOW_S:
        text = f"it took {took_s:.1f} s to answer: every change of a ledger waits for it"
        found = [METADATA_STORE.warn(text, config.metadata, command="")]
    else:
        text = f"answers in {took_s * 1000:.0f} ms, cluster {instance_id}"
        found = [METADATA_STORE.ok(text, config.metadata)]
    if registered and not running:
        text = (
            "it is registered and does not run here: another process with this id is alive, or its session has not "
            "ended yet"
        )
        command = str(cluster_command("cluster", "list"))
        found.append(METADATA_STORE.warn(text, config.bookie_id, command))
    elif running and not registered:
        text = "the bookie runs and is not registered: no new ledger comes to it; it registers again by itself"
        command = str(bookie_command("status"))
        found.append(METADATA_STORE.warn(text, config.bookie_id, command))
    return [*found, *await _cookies(config, unusable), *await _power(config, wait_s)]


async def _cookies(config: Config, unusable: Collection[str]) -> list[Finding]:
    try:
        report = await inspect(config)
    except BkboxError as error:
        return [COOKIES.fail(f"cannot be compared: {error}")]
    if report.ok:
        return [COOKIES.ok("disks, metadata store and configuration agree")]
    if all(each.where in unusable for each in report.differences):
        return []
    places: dict[tuple[str, str, str], list[str]] = {}
    for each in report.differences:
        places.setdefault((each.field, each.found, each.expected), []).append(each.where)
    differences = "; ".join(
        f"{field} of {', '.join(where)} is {found}, expected {expected}"
        for (field, found, expected), where in places.items()
    )
    command = report.advice.removeprefix("run: ")
    return [COOKIES.fail(f"{differences}: {NO_START}", command=command)]


async def _power(config: Config, wait_s: float) -> list[Finding]:
    """Checks whether one power cut takes all bookies, where entries are acknowledged before they are synced."""
    if config.ack_after != "write":
        return []
    try:
        found = await power_domain.check(config, wait_s)
    except BkboxError:
        return []
    if found:
        return [POWER.warn(found, command=power_domain.what_to_do(config))]
    return [POWER.ok("the bookies are on more than one host")]
