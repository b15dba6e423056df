"""The repair worker process; started by the supervisor.

It waits (waiting.py) until there is something to repair, and only then loads what repairs (process.py).
"""

from __future__ import annotations

import socket

from bkbox.ipc.channel import Channel
from bkbox.ipc.child import begin
from bkbox.repair.waiting import Order, until_needed


def repair(control: socket.socket, orders: list[Order]) -> None:
    """Phase two, until the supervisor says stop or is gone."""
    import asyncio
    import logging

    from bkbox.repair.process import RepairProcess

    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s repair %(message)s"
    )
    asyncio.run(RepairProcess(orders).run(control))


if __name__ == "__main__":
    control = begin("repair")
    try:
        orders = until_needed(Channel(control))
    except EOFError:
        orders = []
    if orders:
        repair(control, orders)
