"""All targets by name."""

from __future__ import annotations

from tests.fuzz.target import Target
from tests.fuzz.targets import clients, configs, disks, frames, frontend, logs, stored

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (frames, clients, stored, configs, logs, frontend, disks)
    for target in module.TARGETS
}
