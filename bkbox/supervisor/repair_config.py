"""The first message to the repair process: its settings, from the configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bkbox.config.schema import Config
from bkbox.ipc.messages.repair import OpenRepair


def order_of(config: Config) -> OpenRepair:
    return OpenRepair(
        bookie=config.bookie_id,
        metadata=config.metadata,
        config=os.path.abspath(config.path),
        metadata_wait_s=config.metadata_wait_s,
        entries_in_flight=config.repair_entries_in_flight,
        disk_bytes_per_second=config.jobs_disk_bytes_per_second,
        network_bytes_per_second=config.jobs_network_bytes_per_second,
        metadata_calls_per_second=config.jobs_metadata_calls_per_second,
        p99_growth_max=config.jobs_p99_growth_max,
        ledgers_at_once=config.repair_ledgers_at_once,
        retry_initial_s=config.repair_retry_initial_s,
        retry_max_s=config.repair_retry_max_s,
        topology_script=str(config.topology_script or ""),
        rack_map=config.rack_map,
        autorecovery=config.autorecovery_enabled,
        open_ledger_grace_s=config.autorecovery_open_ledger_grace_s,
        lost_bookie_delay_s=config.autorecovery_lost_bookie_delay_s,
        full_check_interval_s=config.autorecovery_full_check_interval_s,
        gc_interval_s=config.gc_interval_s,
        gc_confirm_s=config.gc_confirm_s,
        gc_trash_s=config.gc_trash_s,
        gc_remember_s=config.gc_remember_s,
        gc_overreplicated_s=config.gc_overreplicated_s,
        compaction_garbage_ratio=config.compaction_garbage_ratio,
        quotas=list(config.quotas),
        quota_interval_s=config.quota_interval_s,
        client=client_options(config),
    )


def client_options(config: Config) -> dict[str, Any]:
    """Client options with which the bookie authenticates to other bookies: names of files, no secrets."""
    with_tls = config.peers_tls != "off"

    def name(path: Path | None) -> str | None:
        return None if path is None else str(path)

    return {
        "tls": config.peers_tls,
        "tls_ca_file": name(config.tls_ca_file) if with_tls else None,
        "tls_certificate_file": name(config.tls_certificate_file) if with_tls else None,
        "tls_key_file": name(config.tls_key_file) if with_tls else None,
        "tls_check_host_name": config.peers_tls_check_host_name,
        "auth": config.peers_auth,
        "auth_user": config.peers_user,
        "auth_secret_file": name(config.peers_secret_file),
    }
