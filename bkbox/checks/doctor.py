"""The view of ``bkbox doctor``: all checks of a configuration, whether its bookie runs or not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import bkbox
from bkbox.api.admin.client import fetch_status
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.api.admin.status import Status
from bkbox.base.host.clock import clock
from bkbox.base.host.files import HostFiles
from bkbox.checks import cluster, configuration, disk, registry
from bkbox.checks import host as host_checks
from bkbox.checks.bookie import of_status
from bkbox.checks.causes import fold
from bkbox.checks.registry import Finding
from bkbox.config import load, metadata_uri
from bkbox.config.schema import Config
from bkbox.errors import BkboxError, BookieNotRunningError, BookieUnresponsiveError
from bkbox.native import kernel_in_use
from bkbox.storage.files import RealFiles


def examine(
    path: Path, environ: Mapping[str, str], *, host: HostFiles, wait_s: float
) -> list[Finding]:
    """Look at the bookie of a configuration, which may run or not. Nothing is changed, and no lock is taken.

    ``wait_s``: for the metadata store, at most.
    """
    refused = list(configuration.values(path, environ))
    if refused:
        return [*refused, host_checks.kernel(kernel_in_use()), *_host(host, None)]
    config = load.load(path, environ)
    status, own = _status(config)
    alive = status is not None or any(finding.verdict == "fail" for finding in own)
    failed = {each.about for each in own if each.check == registry.DISK.id}
    listen = status.listen if status is not None and status.state == "running" else None
    findings = [
        *configuration.extras(config),
        *own,
        *(() if alive else configuration.admin_socket(config)),
        *configuration.openable(config, running=alive),
        *(
            each
            for each in disk.check(config, host, RealFiles(), running=alive)
            if each.about not in failed
        ),
        *configuration.port(config, listen, running=alive),
    ]
    uri = metadata_uri.parse(config.metadata)
    if isinstance(uri, metadata_uri.SqliteUri):
        findings += host_checks.file_system(host, uri.path)
        findings += host_checks.file_system_errors(host, uri.path)
    unusable = {
        each.about for each in findings if each.check == registry.DISK.id and each.verdict == "fail"
    }
    findings += asyncio.run(cluster.store(config, wait_s, running=alive, unusable=unusable))
    if status is None:  # a running bookie says itself what it runs with
        findings.append(host_checks.kernel(kernel_in_use()))
    return fold([*findings, *_host(host, status)])


def _status(config: Config) -> tuple[Status | None, list[Finding]]:
    """The status document, and the findings in it."""
    try:
        status = fetch_status(admin_socket_path(config))
    except BookieNotRunningError as error:
        return None, [registry.BOOKIE.warn(str(error))]
    except BookieUnresponsiveError as error:
        return None, [registry.BOOKIE.fail(str(error), command="systemctl status bkbox")]
    except BkboxError as error:
        advice = "; run this as the user that runs the bookie, with the same version of bkbox"
        text = f"it runs and cannot be asked: {error}{advice}"
        return None, [registry.BOOKIE.fail(text, command="systemctl status bkbox")]
    seen = list(of_status(status))
    found = [_with_warning(each, status) for each in seen if _is_shown(each)]
    texts = tuple(each.why for each in seen if each.verdict != "ok")
    found += [
        registry.BOOKIE.warn(warning.text, command=warning.command)
        for warning in status.warnings
        if not warning.text.startswith(texts)
    ]
    if status.version != bkbox.__version__:
        text = f"the bookie runs {status.version}, and {bkbox.__version__} is installed here"
        found.append(registry.VERSION.warn(text))
    return status, found


def _is_shown(each: Finding) -> bool:
    if each.verdict == "ok":
        return each.check == registry.BOOKIE.id
    if each.check == registry.CONFIGURATION.id:  # the doctor reads the file itself
        return False
    return registry.DOCTOR in each.views or registry.STATUS in each.views


def _with_warning(each: Finding, status: Status) -> Finding:
    """With what the bookie itself says beyond the finding. What is no failure of a start is a warning here."""
    for warning in status.warnings:
        if each.verdict != "ok" and warning.text.startswith(each.why):
            each = replace(each, why=warning.text, command=warning.command)
    is_mild = each.check == registry.BOOKIE.id or registry.DOCTOR not in each.views
    return replace(each, verdict="warn") if is_mild and each.verdict == "fail" else each


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
