"""Ports for bookies of this host."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Container

HOST = "127.0.0.1"


def free_port(
    rng: random.Random,
    ports: range,
    used: Container[int] = (),
    hosts: tuple[str, ...] = (HOST,),
) -> int:
    """One of ``ports``, not in ``used``, on which nothing listens at any of ``hosts``.

    ``ports`` below those that the kernel gives to connections (32768 and up) stay free while a bookie is down. Raises
    OSError if one of ``hosts`` is no address of this host.
    """
    while True:
        port = rng.choice(ports)
        if port not in used and all(_is_free(host, port) for host in hosts):
            return port


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise
            return False
    return True
