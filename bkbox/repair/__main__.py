"""The repair worker process, started by the supervisor.

It idles (idle_loop.py) until there is something to repair, and only then imports the repair code (process.py).
"""

from __future__ import annotations

import os
import socket

from bkbox.ipc.channel import Channel
from bkbox.ipc.child import begin
from bkbox.repair.idle_loop import Order, wait_for_first_job

_NICE = 5
"""Nice value: under CPU contention this process gets a third of the share of the processes that serve clients."""


def repair(control: socket.socket, orders: list[Order], log: str) -> None:
    """Run jobs until the supervisor says stop or is gone. Processes that serve clients have priority."""
    import asyncio

    from bkbox.base import logs
    from bkbox.repair.process import RepairProcess

    os.nice(_NICE)
    logs.begin("repair", logs.LogSettings.from_text(log))
    asyncio.run(RepairProcess(orders).run(control))


if __name__ == "__main__":
    child = begin("repair")
    try:
        orders = wait_for_first_job(Channel(child.control))
    except EOFError:
        orders = []
    if orders:
        repair(child.control, orders, child.log)
