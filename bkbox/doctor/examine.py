"""All checks, in the order in which somebody would look."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from bkbox.api.admin.client import fetch_status
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.api.admin.status import Status
from bkbox.api.status.cookie_report import DIFFER
from bkbox.base.host.clock import clock
from bkbox.base.host.files import HostFiles
from bkbox.config import load as configuration
from bkbox.config.schema import Config
from bkbox.doctor import (
    bookie_checks,
    disk_checks,
    file_system_checks,
    host_checks,
    power_checks,
    store_checks,
)
from bkbox.doctor.finding import Finding, fail, ok, warn
from bkbox.errors import BkboxError, BookieNotRunningError
from bkbox.storage.files import RealFiles
from bkbox.supervisor.boot.other_writers import other_writers


def examine(
    path: Path, environ: Mapping[str, str], *, host: HostFiles, wait_s: float
) -> list[Finding]:
    """Look at the bookie of a configuration, which may run or not. Nothing is changed, and no lock is taken.

    ``wait_s``: for the metadata store, at most.
    """
    findings = _configuration(path, environ)
    config = None if findings else configuration.load(path, environ)
    if config is None:
        return [*findings, host_checks.kernel(), *_host(host, None)]
    others = other_writers(config, _user_of(config))
    findings += [fail("configuration", str(path), *each.rsplit(": ", 1)) for each in others]
    if not others:
        findings.append(ok("configuration", str(path), "no problems"))
    findings += host_checks.extras(announce=config.announce)
    status, said = _status(config)
    findings += said
    alive = status is not None or any(finding.verdict == "fail" for finding in said)
    if status is not None:
        findings += bookie_checks.running(config, status)
    findings += bookie_checks.admin_socket(config, answers=alive)
    findings += bookie_checks.openable(config, running=alive)
    findings += disk_checks.check(config, host, RealFiles(), running=alive)
    findings += bookie_checks.port(config, status, running=alive)
    findings += file_system_checks.of_metadata(config, host)
    unusable = {each.about for each in findings if each.check == "disk" and each.verdict == "fail"}
    said, folders = asyncio.run(
        store_checks.check(config, wait_s, running=alive, unusable=unusable)
    )
    findings = [*_one_per_cause(findings, said, folders), *said]
    if not any(each.check == "metadata store" and each.verdict == "fail" for each in said):
        findings += asyncio.run(power_checks.check(config, wait_s))
    if status is None:  # which says itself what it runs with
        findings.append(host_checks.kernel())
    return [*findings, *_host(host, status)]


def _one_per_cause(
    findings: list[Finding], said: list[Finding], folders: Collection[str]
) -> list[Finding]:
    """Without those that have the cause of the finding about cookies: folders that are not what they should be, and
    the warning of the bookie."""
    if not any(each.check == "cookies" and each.verdict == "fail" for each in said):
        return findings
    return [
        each
        for each in findings
        if not (each.check in ("disk", "lock") and each.verdict != "ok" and each.about in folders)
        and not each.why.startswith(DIFFER)
    ]


def _configuration(path: Path, environ: Mapping[str, str]) -> list[Finding]:
    return [
        fail("configuration", each.place, each.text, f"bkbox config validate --config {path}")
        for each in configuration.validate(path, environ)
    ]


def _user_of(config: Config) -> int:
    """The user that runs the bookie, by whose disks they are."""
    for folder in config.disks:
        with suppress(OSError):
            return folder.stat().st_uid
    return os.geteuid()


def _status(config: Config) -> tuple[Status | None, list[Finding]]:
    """What the bookie says, and what is wrong with how it says it."""
    try:
        return fetch_status(admin_socket_path(config)), []
    except BookieNotRunningError as error:
        return None, [warn("bookie", "", str(error), f"bkbox run --config {config.path}")]
    except BkboxError as error:
        advice = "run this as the user that runs the bookie, with the same version of bkbox"
        return None, [fail("bookie", "", f"it runs and cannot be asked: {error}", advice)]


def _host(host: HostFiles, status: Status | None) -> list[Finding]:
    pid = None
    for process in status.processes if status is not None else ():
        if process.role == "frontend" and process.running and process.pid != os.getpid():
            pid = process.pid
    return [
        host_checks.limits(host, pid),
        *host_checks.memory(host),
        host_checks.clocks(clock()),
    ]
