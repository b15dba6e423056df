"""The contents of the bundle, a function for each file."""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import bkbox
from bkbox.api.admin import client
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.api.admin.status import to_json
from bkbox.base.host.blocks import device_of, mount_of
from bkbox.base.host.files import HostFiles
from bkbox.base.host.processes import threads
from bkbox.base.text import error_text
from bkbox.checks.doctor import examine
from bkbox.checks.registry import worst
from bkbox.config.schema import Config
from bkbox.errors import BkboxError, HostError
from bkbox.native import kernel_in_use
from bkbox.supervisor.boot.cookie_repair import inspect

LOG_BYTES_MAX = 32 << 20
"""Maximum bytes of a log; of a longer one the end is taken."""

_JOURNAL_S = 60.0
_METADATA_S = 5.0


def doctor(config: Config, environ: Mapping[str, str]) -> object:
    found = examine(config.path, environ, host=HostFiles(), wait_s=_METADATA_S)
    return {"verdict": worst(found), "findings": [asdict(each) for each in found]}


def resolved_config(config: Config) -> object:
    return {
        key: {"value": value, "from": config.provenance[key]}
        for key, value in config.values().items()
    }


def cookies(config: Config) -> object:
    return asdict(asyncio.run(inspect(config)))


def status(config: Config) -> dict[str, Any]:
    return to_json(client.fetch_status(admin_socket_path(config)))


def jobs(config: Config) -> object:
    return [asdict(job) for job in client.jobs(admin_socket_path(config))]


def stages(document: Mapping[str, Any]) -> object:
    """The stages of the adds and their times, for each disk: from the status document."""
    return {disk["path"]: disk["stages"] for disk in document["disks"]}


def thread_states(document: Mapping[str, Any], host: HostFiles) -> object:
    """The state of each thread of all processes of the bookie, and the kernel function that it sleeps in."""
    return [
        {
            "role": process["role"],
            "name": process["name"],
            "pid": process["pid"],
            "command": (host.text(f"/proc/{process['pid']}/cmdline") or "").split("\0"),
            "status": (host.text(f"/proc/{process['pid']}/status") or "").splitlines(),
            "threads": [asdict(thread) for thread in threads(host, process["pid"])],
        }
        for process in document["processes"]
    ]


def versions() -> object:
    return {
        "bkbox": bkbox.__version__,
        "kernel": kernel_in_use(),
        "python": sys.version,
        "executable": sys.executable,
        "libraries": {
            each.metadata["Name"]: each.version for each in importlib.metadata.distributions()
        },
    }


def host_facts(config: Config, host: HostFiles) -> object:
    folders = [*config.disks, *((config.journal,) if config.journal else ())]
    return {
        "system": platform.uname()._asdict(),
        "distribution": (host.text("/etc/os-release") or "").splitlines(),
        "memory": (host.text("/proc/meminfo") or "").splitlines(),
        "pressure": {name: host.text(f"/proc/pressure/{name}") for name in ("cpu", "io", "memory")},
        "load": host.text("/proc/loadavg"),
        "folders": [_folder(folder, host) for folder in folders],
    }


def _folder(folder: Path, host: HostFiles) -> object:
    mount, device = mount_of(host, folder), device_of(host, folder)
    names = sorted(folder.iterdir()) if folder.is_dir() else []
    return {
        "path": str(folder),
        "mount": None if mount is None else asdict(mount),
        "device": None if device is None else asdict(device),
        "holds": [
            {"name": path.name, "bytes": path.stat().st_size} for path in names if path.exists()
        ],
    }


def log_file(path: Path) -> str:
    """The end of a log. Raises OSError."""
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - LOG_BYTES_MAX))
        return file.read().decode("utf-8", "replace")


def journal(unit: str, since: str) -> str:
    """The systemd journal's lines of a service. Raises HostError."""
    command = [
        "journalctl",
        "--unit",
        unit,
        "--since",
        since,
        "--no-pager",
        "--output",
        "short-iso",
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_JOURNAL_S, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(
            f"the journal cannot be read: {error_text(error)}; give a log with --log FILE"
        ) from None
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip()
        raise HostError(f"the journal cannot be read: {reason}; give a log with --log FILE")
    return done.stdout[-LOG_BYTES_MAX:].decode("utf-8", "replace")


EXPECTED_ERRORS = (BkboxError, OSError)
"""Errors that leave one part out of the bundle, and none of the others."""
