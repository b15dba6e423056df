"""Whether one power cut takes all bookies at once, where entries are acknowledged before they are synced."""

from __future__ import annotations

from collections.abc import Iterable

from bkbox.config.schema import Config
from bkbox.doctor.finding import Finding, ok, warn
from bkbox.errors import BkboxError
from bkbox.supervisor.boot import power_domain


async def check(config: Config, wait_s: float) -> Iterable[Finding]:
    """Of the bookies that the metadata store knows. Nothing where it cannot be asked: another check says that."""
    if config.ack_after != "write":
        return []
    try:
        found = await power_domain.look(config, wait_s)
    except BkboxError:
        return []
    if found:
        return [warn("power", "", found, power_domain.what_to_do(config))]
    return [ok("power", "", "the bookies are on more than one host")]
