"""The admin API of a bookie over its socket, without the commands and their configuration."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from tests.harness.processes import BookieProcess


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def ask(bookie: BookieProcess, path: str) -> tuple[int, str]:
    """Status and body of a GET."""
    connection = _UnixConnection(bookie.disks[0] / "admin.sock")
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def status_of(bookie: BookieProcess) -> dict[str, Any]:
    """The status document."""
    found = json.loads(ask(bookie, "/api/v1/status")[1])
    assert isinstance(found, dict)
    return found
