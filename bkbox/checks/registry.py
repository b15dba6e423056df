"""The checks: what each one finds wrong, how bad that is, what to do, and which views show it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from bkbox.base.commandline import CommandLine, bookie_command, cluster_command

ABOUT = "ABOUT"
"""Stands in a remedy for what the finding is about."""

DIFFER, NO_START = "the cookies differ (", "the bookie would not start"
"""What a running bookie says of its cookies, and what the doctor says."""

Verdict = Literal["ok", "warn", "fail"]

STATUS, HEALTH, READYZ, HEALTHZ = "status", "health", "/readyz", "/healthz"
DOCTOR, SELFTEST = "doctor", "selftest"


@dataclass(frozen=True, slots=True)
class Effect:
    """A finding that is a consequence of another one; its fields are those of a finding."""

    check: str
    about: str
    verdict: Verdict
    why: str
    command: str


@dataclass(frozen=True, slots=True)
class Finding:
    """``check``: its id; ``about``: of what (a disk, an address; "" for the whole); ``why``: what was found, and what
    follows from it; ``command``: what to run or do ("" where there is nothing to do); ``effects``: its consequences,
    which are no findings of their own.

    ``fail``: the bookie does not start, or does not do what it promises. ``warn``: it does, and needs attention.
    """

    check: str
    about: str
    verdict: Verdict
    why: str
    command: str = ""
    effects: tuple[Effect, ...] = ()

    @property
    def views(self) -> tuple[str, ...]:
        return CHECKS[self.check].views


@dataclass(frozen=True, slots=True)
class Check:
    """``severity``: the worst that it says; ``remedy``: what to run first, unless a finding has a
    command of its own; ``needs``: what it looks at; ``views``: which of them show it."""

    scope: str
    needs: str
    id: str
    severity: Verdict
    meaning: str
    remedy: str | CommandLine
    views: tuple[str, ...]

    def ok(self, why: str, about: str = "") -> Finding:
        return Finding(self.id, about, "ok", why)

    def warn(self, why: str, about: str = "", command: str | None = None) -> Finding:
        if command is None:
            command = str(self.remedy).replace(ABOUT, shlex.quote(about))
        return Finding(self.id, about, "warn", why, command)

    def fail(self, why: str, about: str = "", command: str | None = None) -> Finding:
        assert self.severity == "fail", self.id
        return replace(self.warn(why, about, command), verdict="fail")


def worst(findings: Iterable[Finding]) -> Verdict:
    """The worst of all findings; 'ok' of none."""
    verdicts = {finding.verdict for finding in findings}
    return "fail" if "fail" in verdicts else "warn" if "warn" in verdicts else "ok"


CHECKS: dict[str, Check] = {}


def _check(
    scope: str,
    needs: str,
    name: str,
    severity: Verdict,
    meaning: str,
    remedy: str | CommandLine,
    *views: str,
) -> Check:
    assert name not in CHECKS, name
    CHECKS[name] = Check(scope, needs, name, severity, meaning, remedy, views)
    return CHECKS[name]


# fmt: off
_running = partial(_check, "bookie", "a running bookie")
BOOKIE = _running("bookie", "fail", "it does not run, or is starting or stopping",
    bookie_command("run"), READYZ, HEALTHZ, HEALTH, DOCTOR)
PROGRESS = _running("progress", "fail", "a process has made no progress for seconds",
    bookie_command("status"), READYZ, HEALTHZ, HEALTH, STATUS, DOCTOR)
FRONTEND = _running("frontend", "fail", "the front-end is being started again",
    "journalctl -u bkbox -p warning", READYZ, HEALTHZ, HEALTH)
REPAIR = _running("repair", "warn", "the repair worker is being started again",
    "journalctl -u bkbox -p warning", HEALTHZ, HEALTH)
RESTARTS = _running("processes", "warn", "a process was started again since the bookie began",
    "journalctl -u bkbox -p warning", DOCTOR)
VERSION = _running("version", "warn", "the bookie runs another version than is installed",
    "systemctl restart bkbox", DOCTOR)
WRITABLE = _running("writable", "warn", "the bookie takes no writes",
    bookie_command("status"), HEALTHZ, HEALTH, DOCTOR)
READ_ONLY = _running("read-only", "warn", "an operator made the bookie or a disk read-only",
    bookie_command("bookie", "read-only", "off"), STATUS)
JOB = _running("job", "warn", "a job failed, is blocked or makes no progress",
    bookie_command("job", "list"), STATUS)
LIMBO = _running("limbo", "warn", "ledgers are in limbo", bookie_command("job", "list"), HEALTHZ, HEALTH, STATUS)
COPIES = _running("copies", "warn", "entries that this bookie has to hold are missing here",
    bookie_command("job", "list"), HEALTHZ, HEALTH, STATUS)
UNCHECKED = _running("unchecked copies", "warn", "the bookie was away, and is still comparing what it has to hold",
    bookie_command("job", "list"), HEALTH)
BLOCKED = _running("blocked", "warn", "a ledger in limbo cannot be repaired without help",
    cluster_command("ledger", "end", "--stuck", "--dry-run"), DOCTOR)
QUOTA = _running("quota", "warn", "an owner is over its quota", cluster_command("top", "--by", "owner"), STATUS)
USE = _running("use of owners", "warn", "what the ledgers of owners take could not be found out",
    cluster_command("cluster", "info"), STATUS)

_disk = partial(_check, "disk", "a running bookie")
DISK = _check("disk", "the configuration file, disks; or a running bookie", "disk", "fail",
    "a disk is out of service, not mounted, not prepared, or shares its device",
    bookie_command("disk", "list"), HEALTHZ, HEALTH, STATUS, DOCTOR)
NO_DISK = _disk("disks", "fail", "no disk is in service", bookie_command("disk", "list"), READYZ)
UNLISTED = _disk("unlisted disk", "warn", "the ledgers of a disk are not known: no new ledgers",
    bookie_command("disk", "list"), STATUS)
NO_SPACE = _disk("room", "warn", "a disk takes no entries for lack of room",
    bookie_command("gc", "run"), HEALTHZ, STATUS)
READ_ONLY_DISK = _disk("read-only disk", "warn", "a disk takes no entries, by request or while it drains",
    bookie_command("disk", "list"), HEALTHZ)
DEVICE = _disk("device", "warn", "the device or its file system has had errors",
    bookie_command("disk", "replace", ABOUT, "NEW_FOLDER"), HEALTHZ, STATUS)
SEGMENTS = _disk("segments", "warn", "parts of segments cannot be read",
    bookie_command("scrub", "run"), HEALTHZ, STATUS)
PROBE = _disk("write and read", "fail", "what is written to a disk does not come back",
    bookie_command("disk", "list"), HEALTHZ)

_folder = partial(_check, "disk", "the configuration file, disks")
PERMISSIONS = _folder("permissions", "fail", "others may read a disk, or the bookie cannot write to it",
    "chmod u+rwx,o-rwx ABOUT", DOCTOR)
FILE_SYSTEM = _folder("file system", "fail", "the file system does not keep what is synced, or has had errors",
    "dmesg --ctime | tail", DOCTOR, SELFTEST)
SPACE = _folder("space", "fail", "few bytes or inodes are free", bookie_command("gc", "status"), DOCTOR)
LOCK = _folder("lock", "fail", "another process holds a disk", "ps -o pid,ppid,args -p PID", DOCTOR)
LAST_STOP = _folder("last stop", "warn", "the last stop was not in order: the next start looks for losses",
    bookie_command("run"), DOCTOR)
LEFTOVERS = _folder("leftovers", "warn", "files that are not bkbox's, or interrupted changes", "ls -la ABOUT", DOCTOR)
_tested = partial(_check, "disk", "disks, which it writes to")
FLUSHES = _tested("flushes", "fail", "syncs do not reach the device as flushes", "findmnt -T ABOUT", SELFTEST)
KILLED = _tested("killed writer", "fail", "synced blocks are gone after a kill", "dmesg --ctime | tail", SELFTEST)

_file = partial(_check, "configuration", "the configuration file")
CONFIGURATION = _check("configuration", "the configuration file; or a running bookie", "configuration", "fail",
    "a start would refuse the configuration file, or what it names",
    bookie_command("config", "validate"), HEALTHZ, STATUS, DOCTOR)
PORT = _file("port", "fail", "the port is taken, does not answer, or its advertised name does not resolve",
    "ss -ltnp 'sport = :PORT'", DOCTOR)
_values = partial(_check, "configuration", "a running bookie")
HTTP_TLS = _values("http_tls", "warn", "the admin API is reachable from other hosts and not encrypted",
    bookie_command("config", "explain", "http_tls"), STATUS)
ACK_AFTER = _values("ack_after", "warn", "entries are acknowledged before they are synced",
    bookie_command("config", "explain", "ack_after"), STATUS)

_cluster = partial(_check, "cluster", "the configuration file, metadata store")
METADATA_STORE = _cluster("metadata store", "fail", "it does not answer, is slow, or disagrees about what runs",
    cluster_command("cluster", "info"), DOCTOR)
METADATA = _check("cluster", "a running bookie", "metadata", "fail",
    "the bookie is not registered in the metadata store",
    cluster_command("cluster", "info"), READYZ, HEALTHZ, STATUS)
COOKIES = _check("cluster", "the configuration file, disks, metadata store; or a running bookie", "cookies", "fail",
    "the cookies of disks, metadata store and configuration differ",
    bookie_command("cookie", "verify"), HEALTHZ, STATUS, DOCTOR)
UNCOMPARED = _check("cluster", "a running bookie", "uncompared cookies", "warn", "the cookies could not be compared",
    bookie_command("cookie", "verify"), STATUS)
POWER = _cluster("power", "warn", "one power cut takes all bookies, and `ack_after = write`",
    bookie_command("config", "explain", "ack_after"), DOCTOR)
REPLICAS = _cluster("replicas", "warn", "ledgers lack replicas",
    cluster_command("autorecovery", "list"), HEALTH)

_host = partial(_check, "host", "this host")
KERNEL = _host("kernel", "warn", "the inner loops are interpreted: slow", "apt install gcc python3-dev", STATUS, DOCTOR)
LIMITS = _host("limits", "fail", "the bookie may open too few files", "ulimit -n 131072", STATUS, DOCTOR)
MEMORY = _host("memory", "warn", "huge pages for everything, or many dirty pages",
    "sysctl -w vm.dirty_background_bytes=268435456 vm.dirty_bytes=1073741824", DOCTOR)
CLOCK = _host("clock", "warn", "the clock is not kept right", "timedatectl set-ntp true", DOCTOR)
# fmt: on
