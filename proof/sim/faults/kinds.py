"""All kinds of faults, by the names that profiles use."""

from __future__ import annotations

from proof.sim.faults.device_faults import DEVICE_FAULTS
from proof.sim.faults.disk_faults import DISK_FAULTS
from proof.sim.faults.environment_faults import ENVIRONMENT_FAULTS
from proof.sim.faults.faults import Fault
from proof.sim.faults.log_faults import LOG_FAULTS
from proof.sim.faults.loss_faults import LOSS_FAULTS
from proof.sim.faults.process_faults import PROCESS_FAULTS
from proof.sim.faults.stale_faults import STALE_FAULTS
from proof.sim.faults.step_faults import STEP_FAULTS

KINDS: dict[str, Fault] = {
    **PROCESS_FAULTS,
    **LOSS_FAULTS,
    **STEP_FAULTS,
    **DISK_FAULTS,
    **DEVICE_FAULTS,
    **STALE_FAULTS,
    **LOG_FAULTS,
    **ENVIRONMENT_FAULTS,
}
