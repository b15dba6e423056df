"""Sends the datagrams of systemd's notification protocol to a service manager.

Written here because it is one page of code. The pure Python library for it has had no release since 2021, and systemd's
own binding needs the headers of libsystemd to install. Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping, MutableMapping

from bkbox.base.text import error_text

log = logging.getLogger(__name__)

_SEND_TIMEOUT_S = 0.5
_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class ServiceManager:
    """The service manager that a supervisor reports to. Without ``address`` there is none, and nothing happens.

    ``address``: path of a unix socket, or '@' and an abstract name. ``watchdog_s``: seconds without a sign of life
    after which the manager kills; None: no watchdog.
    """

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        self._address = address
        self.watchdog_s = watchdog_s
        self._warned = False

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str], pid: int) -> ServiceManager:
        """The service manager that the environment names. Its variables are removed: they are not for child processes.

        An invalid variable is only a warning, since a bookie can run without a service manager.
        """
        given = {name: environ.pop(name) for name in _VARIABLES if name in environ}
        address = given.get("NOTIFY_SOCKET")
        if address is not None and address[:1] not in ("/", "@"):
            log.warning("NOTIFY_SOCKET=%s is no address of a unix socket: ignored", address)
            address = None
        return cls(address, None if address is None else _watchdog_s(given, pid))

    @property
    def listens(self) -> bool:
        return self._address is not None

    def tell(self, **fields: object) -> bool:
        """Send assignments as one datagram. Returns False if it did not arrive; the first failure is logged."""
        if self._address is None:
            return False
        lines = [f"{name}={str(value).replace(chr(10), ' ')}" for name, value in fields.items()]
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.settimeout(_SEND_TIMEOUT_S)
                sock.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            if not self._warned:
                log.warning(
                    "the service manager at %s cannot be told: %s", self._address, error_text(error)
                )
            self._warned = True
            return False
        self._warned = False
        return True


def _watchdog_s(given: Mapping[str, str], pid: int) -> float | None:
    if given.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None  # meant for another process
    text = given.get("WATCHDOG_USEC")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        log.warning("WATCHDOG_USEC=%s is no number of microseconds: ignored", text)
        return None
    return int(text) / 1_000_000
