"""The metadata store, and what binds it to the disks."""

from __future__ import annotations

import time
from collections.abc import Collection

from bkbox.base.ids import BookieId
from bkbox.config.schema import Config
from bkbox.doctor.finding import Finding, fail, ok, warn
from bkbox.errors import BkboxError
from bkbox.metadata import connect
from bkbox.supervisor.boot.cookie_repair import inspect

SLOW_S = 1.0


async def check(
    config: Config, wait_s: float, *, running: bool, unusable: Collection[str]
) -> tuple[list[Finding], set[str]]:
    """Whether it answers, knows the bookie, and agrees with the disks; and the folders that the finding about cookies
    is about, which have no other cause. Changes nothing.

    ``unusable``: folders of which a finding tells already; where no cookie differs but theirs, nothing is added.
    """
    began = time.monotonic()
    try:
        async with await connect(config.metadata, min(wait_s, config.metadata_wait_s)) as store:
            instance_id = await store.instance_id()
            registered = BookieId(config.bookie_id) in await store.bookies()
        took_s = time.monotonic() - began
    except BkboxError as error:
        info = f"bkbox cluster info --metadata '{config.metadata}'"
        return [fail("metadata store", config.metadata, str(error), info)], set()
    found = [_answered(config, instance_id, took_s)]
    if registered != running:
        found.append(_registration(config, registered=registered))
    cookies, folders = await _cookies(config, unusable)
    return [*found, *([] if cookies is None else [cookies])], folders


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


async def _cookies(config: Config, unusable: Collection[str]) -> tuple[Finding | None, set[str]]:
    try:
        report = await inspect(config)
    except BkboxError as error:
        verify = f"bkbox cookie verify --config {config.path}"
        return fail("cookies", "", f"cannot be compared: {error}", verify), set()
    if report.ok:
        return ok("cookies", "", "disks, metadata store and configuration agree"), set()
    if all(each.where in unusable for each in report.differences):
        return None, set()
    places: dict[tuple[str, str, str], list[str]] = {}
    for each in report.differences:
        places.setdefault((each.field, each.found, each.expected), []).append(each.where)
    said = "; ".join(
        f"{field} of {', '.join(where)} is {found}, expected {expected}"
        for (field, found, expected), where in places.items()
    )
    finding = fail(
        "cookies",
        "",
        f"{said}: the bookie would not start",
        report.advice.removeprefix("run: "),
    )
    return finding, {each.where for each in report.differences}
