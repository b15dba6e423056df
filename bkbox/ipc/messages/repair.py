"""Between the supervisor and the repair worker: its start, jobs, quotas, and what a job asks of the bookie."""

from __future__ import annotations

from typing import Any

from bkbox.ipc.messages.message import Message


class OpenRepair(Message, to="repair"):
    """The environment and the rate limits of this bookie's jobs; 0: no limit. ``client``: options of the client that
    reaches other bookies, in addition to those for racks. ``config``: the path of the bookie's configuration, for the
    commands that jobs suggest. Descriptors follow by AttachDisk."""

    bookie: str
    metadata: str
    metadata_wait_s: float
    entries_in_flight: int
    disk_bytes_per_second: int
    network_bytes_per_second: int
    metadata_calls_per_second: int
    p99_growth_max: float
    ledgers_at_once: int
    retry_initial_s: float
    retry_max_s: float
    topology_script: str
    rack_map: str
    autorecovery: bool = False
    open_ledger_grace_s: float = 30.0
    lost_bookie_delay_s: int = 60
    full_check_interval_s: float = 0.0
    gc_interval_s: float = 0.0
    gc_confirm_s: float = 0.0
    gc_trash_s: float = 0.0
    gc_remember_s: float = 0.0
    gc_overreplicated_s: float = 0.0
    compaction_garbage_ratio: float = 1.0
    quotas: list[str] = []  # noqa: RUF012 - never changed
    quota_interval_s: float = 60.0
    config: str = ""
    client: dict[str, Any] = {}  # noqa: RUF012 - never changed


class OverQuota(Message, to="supervisor frontend"):
    """A page of the ledgers whose owner is over its quota, LEDGER_ID_ITEM each; the supervisor forwards it to the
    front-end. The previous set applies until the last page has arrived."""

    more: bool = False


OVER_QUOTA_PAGE = 8_192
"""Ledgers per OverQuota page."""


class QuotaUse(Message, to="supervisor"):
    """The usage of owners: (owner, bytes, quota in bytes, True if exceeded) each. ``unlisted_owners``: the number of
    owners that are left out for brevity. ``checked_ms``: the time of the measurement. ``problem``: why it failed; the
    previous figures then stand.
    """

    owners: list[list[Any]] = []  # noqa: RUF012 - never changed
    unlisted_owners: int = 0
    checked_ms: int = 0
    problem: str = ""


class Draining(Message, to="supervisor"):
    """Repair worker to supervisor: starts or, without ``wanted``, ends the draining of a disk, which then migrates its
    ledgers away and accepts no new ones. Refused with the reason if it is not possible. Reply: Done, once it is so."""

    disk: str
    wanted: bool


class Retiring(Message, to="supervisor"):
    """Repair worker to supervisor: with ``wanted``, the bookie accepts no more entries because it is being
    decommissioned. Reply: Done, once it is so."""

    wanted: bool


class StartJob(Message, to="repair"):
    """Runs a job (bkbox/jobs). ``id`` is new, or its earlier run ended with its process. No reply."""

    id: int
    kind: str
    arguments: dict[str, str]


class ControlJob(Message, to="repair"):
    """``action``: a JobAction. ``bytes_per_second`` goes with 'rate'; with ``id`` 0 it applies to all jobs together. No
    reply; ignored if the job has ended."""

    id: int
    action: str
    bytes_per_second: int = 0


class JobReport(Message, to="supervisor"):
    """Unsolicited, repair worker to supervisor: ``id`` and those fields of a Job that its run determines."""

    values: dict[str, Any]
