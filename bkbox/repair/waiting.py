"""The repair worker while there is nothing to repair, which is most of its life and should cost nothing.

It takes the supervisor's orders without asyncio, a client or a metadata store, and asks each disk that it is given
whether ledgers are in limbo there. A disk gets new ones only before its worker serves, and is then given anew.
"""

from __future__ import annotations

import socket

from bkbox.ipc import messages
from bkbox.ipc.channel import Channel
from bkbox.ipc.messages import Message

Order = tuple[Message, list[int]]
"""A message of the supervisor and the descriptors that came with it."""


def until_needed(control: Channel) -> list[Order]:
    """What has been ordered when the first disk with ledgers in limbo comes: how to repair, and that disk.

    Nothing: the supervisor says stop. Raises EOFError where it is gone.
    """
    how: list[Order] = []
    while True:
        order, fds = control.receive()
        if isinstance(order, messages.Stop):
            return []
        if isinstance(order, messages.AttachDisk):
            disk = Channel(socket.socket(fileno=fds[0]))
            if _has_limbo(disk):
                return [*how, (order, [disk.sock.detach()])]
            disk.close()
        else:
            how = [(order, fds)]


def _has_limbo(disk: Channel) -> bool:
    try:
        disk.send(messages.ListLedgers(limbo_only=True, call=1))
        page, _fds = disk.receive()
    except EOFError:  # the disk is given anew with its next worker
        return False
    return not isinstance(page, messages.Page) or bool(
        page.payload
    )  # a refusal is the runner's to report
