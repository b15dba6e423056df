"""The metadata store, and what binds it to the disks."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bkbox.config import Config
from bkbox.doctor.finding import Finding, fail, ok, warn
from bkbox.errors import BkboxError
from bkbox.ids import BookieId
from bkbox.metadata import connect
from bkbox.supervisor.cookie_repair import inspect

SLOW_S = 1.0


async def check(config: Config, wait_s: float, *, running: bool) -> list[Finding]:
    """Whether it answers, knows the bookie, and agrees with the disks. Changes nothing."""
    began = time.monotonic()
    try:
        async with await connect(config.metadata, min(wait_s, config.metadata_wait_s)) as store:
            instance_id = await store.instance_id()
            registered = BookieId(config.bookie_id) in await store.bookies()
        took_s = time.monotonic() - began
    except BkboxError as error:
        info = f"bkbox cluster info --metadata '{config.metadata}'"
        return [fail("metadata store", config.metadata, str(error), info)]
    found = [_answered(config, instance_id, took_s)]
    if registered != running:
        found.append(_registration(config, registered=registered))
    return [*found, *await _cookies(config)]


def _answered(config: Config, instance_id: str, took_s: float) -> Finding:
    if took_s > SLOW_S:
        text = f"it took {took_s:.1f} s to answer: every change of a ledger waits for it"
        return warn("metadata store", config.metadata, text)
    return ok(
        "metadata store",
        config.metadata,
        f"answers in {took_s * 1000:.0f} ms, cluster {instance_id}",
    )


def _registration(config: Config, *, registered: bool) -> Finding:
    if registered:
        return warn(
            "metadata store",
            config.bookie_id,
            "it is registered and does not run here: another process with this id is alive, or its session has not "
            "ended yet",
            f"bkbox cluster list --metadata '{config.metadata}'",
        )
    return warn(
        "metadata store",
        config.bookie_id,
        "the bookie runs and is not registered: no new ledger comes to it; it registers again by itself",
        f"bkbox status --config {config.path}",
    )


async def _cookies(config: Config) -> Iterator[Finding]:
    try:
        report = await inspect(config)
    except BkboxError as error:
        verify = f"bkbox cookie verify --config {config.path}"
        return iter([fail("cookies", "", f"cannot be compared: {error}", verify)])
    if report.ok:
        return iter([ok("cookies", "", "disks, metadata store and configuration agree")])
    return iter(
        [
            fail(
                "cookies",
                each.where,
                f"{each.field} is {each.found}, expected {each.expected}: the bookie would not start",
                report.advice.removeprefix("run: "),
            )
            for each in report.differences
        ]
    )
