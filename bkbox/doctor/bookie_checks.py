"""What a bookie that runs says of itself; and whether one that does not could take its address."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import bkbox
from bkbox.api.admin.health import stalls
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.api.admin.status import Status
from bkbox.base.words import counted, error_text
from bkbox.config.schema import Config
from bkbox.doctor.finding import Finding, fail, ok, warn
from bkbox.errors import BootError
from bkbox.supervisor.boot import trial
from bkbox.supervisor.boot.startup_resources import bind

_CONNECT_S = 3.0


def running(config: Config, status: Status) -> Iterator[Finding]:
    """All that is not as it should be with a bookie that answered."""
    if status.state != "running":
        yield warn("bookie", "", f"it is {status.state}: {status.boot.phase}")
    elif not status.writable:
        reasons = ", ".join(status.read_only_reasons) or "no disk does"
        yield warn(
            "bookie", "", f"it takes no writes: {reasons}", f"bkbox status --config {config.path}"
        )
    else:
        yield ok("bookie", "", f"it runs and takes writes on {status.listen}")
    if status.version != bkbox.__version__:
        yield warn(
            "version",
            "",
            f"the bookie runs {status.version}, and {bkbox.__version__} is installed here",
            "restart the bookie: systemctl restart bkbox",
        )
    for process in status.processes:
        if process.restarts:
            yield warn(
                "processes",
                f"{process.role} {process.name}",
                f"was started again {counted(process.restarts, 'time')} since the bookie began",
                "journalctl -u bkbox -p warning",
            )
    stuck = stalls(status)
    for text in stuck:
        yield fail("processes", "", text, f"bkbox status --config {config.path}")
    stalled = {process.disk for process in status.processes if process.stalled_s}
    for disk in status.disks:
        if disk.state != "in service" and disk.disk not in stalled:  # it is told above
            yield fail(
                "disk",
                disk.path,
                f"it is {disk.state}: {disk.reason}",
                f"bkbox disk list --config {config.path}",
            )
    for blocker in status.limbo.blockers:
        yield warn(
            "limbo",
            f"ledger {blocker.ledger}",
            f"it cannot be repaired by itself: {blocker.reason}",
            blocker.what_to_do,
        )
    told = (*stuck, *(f"disk {disk.path} " for disk in status.disks if disk.state != "in service"))
    for each in status.warnings:
        if not each.text.startswith(told):
            yield warn("bookie", "", each.text, each.command)


_LOOKED_AT_ELSEWHERE = frozenset({"disks", "journal", "listen", "metadata"})


def openable(config: Config, *, running: bool) -> Iterator[Finding]:
    """What else a start opens: certificates, secrets, scripts, the address of the admin API."""
    found = [
        each
        for each in trial.failures(config, config.values() if running else {})
        if each.key not in _LOOKED_AT_ELSEWHERE
    ]
    for key, text in found:
        yield fail("configuration", key, text, f"bkbox config validate --config {config.path}")
    if not found:
        yield ok("configuration", "files", "all that it names can be opened")


def port(config: Config, status: Status | None, *, running: bool) -> Iterator[Finding]:
    """Whether clients get through to the port, or, while no bookie runs, whether it is free."""
    if not running:
        try:
            bind(config).close()
        except BootError as error:
            yield fail(
                "port", config.listen, str(error), f"ss -ltnp 'sport = :{config.listen_port}'"
            )
        else:
            yield ok("port", config.listen, "free")
    elif status is not None and status.state == "running":
        yield _reached(status.listen)
    yield from _advertised(config)


def _reached(listen: str) -> Finding:
    host, _, number = listen.rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - what it listens on
    try:
        socket.create_connection((host.strip("[]"), int(number)), _CONNECT_S).close()
    except OSError as error:
        why = f"nobody answers there, though the bookie runs: {error_text(error)}"
        return fail("port", listen, why, "look for a rule of the firewall: nft list ruleset")
    return ok("port", listen, "it answers")


def _advertised(config: Config) -> Iterator[Finding]:
    """Whether the name that clients are told leads anywhere from here."""
    host = config.advertised_host
    try:
        socket.getaddrinfo(host, config.listen_port, type=socket.SOCK_STREAM)
    except OSError as error:
        yield warn(
            "port",
            host,
            f"clients are told this name, and it cannot be resolved here: {error.strerror or error}",
            "correct `advertised_host`, or the name service",
        )


def admin_socket(config: Config, *, answers: bool) -> Iterator[Finding]:
    """A socket file that nobody listens on: left behind by a kill."""
    path = admin_socket_path(config)
    if not answers and path.is_socket():
        text = "left behind by a bookie that was killed; the next start replaces it"
        yield warn("leftovers", str(path), text)
