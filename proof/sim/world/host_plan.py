"""A simulated bookie's set-up and configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bkbox.base.ids import BookieId
from bkbox.config.schema import SCHEMA, Config


@dataclass(frozen=True, slots=True)
class HostPlan:
    """The setup of a bookie. ``again_s``: maximum seconds until its operator restarts it; ``list_s``: mean seconds in
    which a disk lists its ledgers to the front-end; ``bare``: probability that no unsynced data survives the loss of
    the host."""

    name: str
    disks: int
    ack_after: str
    auto_fix_cookies: bool
    strict: bool
    readonly_in_limbo: bool
    segment_bytes: int
    checkpoint_bytes: int
    sync_ms: tuple[float, float]
    again_s: float
    list_s: float
    bare: float


def config_of(plan: HostPlan, root: Path) -> Config:
    """The schema's defaults, except what the plan sets and what would only take time."""
    values: dict[str, Any] = {name: item.metadata["default"] for name, item in SCHEMA.items()}
    values |= {
        "listen": plan.name,
        "advertised_host": plan.name.partition(":")[0],
        "bookie_id": BookieId(plan.name),
        "metadata": "sim:",
        "disks": tuple(root / f"disk{number}" for number in range(plan.disks)),
        "journal": root / "journal" if plan.ack_after == "journal" else None,
        "ack_after": plan.ack_after,
        "auto_fix_cookies": plan.auto_fix_cookies,
        "strict_unclean_shutdown": plan.strict,
        "readonly_while_in_limbo": plan.readonly_in_limbo,
        "segment_bytes_max": plan.segment_bytes,
        "checkpoint_bytes": plan.checkpoint_bytes,
        "restart_backoff_initial_s": 0.5,
        "restart_backoff_max_s": 4.0,
        "repair_retry_initial_s": 1.0,
        "repair_retry_max_s": 8.0,
        "topology_script": None,
        "rack_map": "",
        "run_dir": root / "run",
        "log_level": "warning",
    }
    return Config(**values, path=root / "bookie.toml", provenance={})
