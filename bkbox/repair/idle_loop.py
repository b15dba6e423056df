"""The repair worker while no job runs: the usual state, which should cost nothing.

It receives the supervisor's orders without asyncio, a client or a metadata store, and keeps them until the first job,
or until there are quotas.
"""

from __future__ import annotations

import os

from bkbox.ipc.channel import Channel
from bkbox.ipc.messages.frontend import AttachDisk
from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.process import GetStats, Settings, Stats, Stop
from bkbox.ipc.messages.repair import OpenRepair, StartJob

Order = tuple[Message, list[int]]
"""A message of the supervisor and the descriptors that came with it."""


def wait_for_first_job(control: Channel) -> list[Order]:
    """Wait for the first job or the first quotas; returns all orders up to and including that one.

    An empty list: the supervisor says stop. Raises EOFError where the supervisor is gone.
    """
    orders: list[Order] = []
    while True:
        order, fds = control.receive()
        if isinstance(order, Stop):
            return []
        if isinstance(order, GetStats):  # a liveness check of this process
            control.send(Stats(call=order.call, values={}))
            continue
        if isinstance(order, AttachDisk):
            _forget_disk(orders, order.disk)
        orders.append((order, fds))
        if _is_work(order):
            return orders


def _is_work(order: Message) -> bool:
    match order:
        case StartJob():
            return True
        case OpenRepair():
            return bool(order.quotas)
        case Settings():
            return bool(order.values["quotas"])
        case _:
            return False


def _forget_disk(orders: list[Order], disk: str) -> None:
    """Drop the orders of a disk whose worker was restarted: the previous channel is of no use."""
    for order in orders:
        if isinstance(order[0], AttachDisk) and order[0].disk == disk:
            for fd in order[1]:
                os.close(fd)
            orders.remove(order)
            return
