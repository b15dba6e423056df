"""What the supervisor says first to a repair process, for tests."""

from __future__ import annotations

from typing import Any, cast

from bkbox.ipc.messages.repair import OpenRepair

_USUAL = {
    "bookie": "b:1",
    "metadata": "",
    "metadata_wait_s": 1.0,
    "entries_in_flight": 1,
    "disk_bytes_per_second": 0,
    "network_bytes_per_second": 0,
    "metadata_calls_per_second": 0,
    "p99_growth_max": 1.5,
    "ledgers_at_once": 1,
    "retry_initial_s": 1.0,
    "retry_max_s": 1.0,
    "topology_script": "",
    "rack_map": "",
}


def open_repair(**other: object) -> OpenRepair:
    """Of a bookie without bounds, but for what is given."""
    return OpenRepair(**cast(Any, _USUAL | other))
