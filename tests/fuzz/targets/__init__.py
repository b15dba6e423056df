"""All targets by name."""

from __future__ import annotations

from tests.fuzz.target import Target
from tests.fuzz.targets import (
    clients,
    configs,
    disks,
    frames,
    frontend,
    links,
    logs,
    rebuilt,
    stored,
    waiting,
)

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (frames, clients, stored, configs, logs, frontend, disks, links, waiting, rebuilt)
    for target in module.TARGETS
}
