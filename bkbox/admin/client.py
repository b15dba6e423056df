"""Ask a running bookie for its status document. Blocking: it is the CLI and scripts that ask."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path

from bkbox.admin.paths import STATUS_URL, short_address
from bkbox.admin.status import Status, from_json
from bkbox.errors import BookieNotRunningError, EncodingError, OperatorError, PeerError


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self.timeout)
            with short_address(self._path) as address:
                sock.connect(address)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


def fetch_status(path: Path, timeout: float = 5.0) -> Status:
    """The status of the bookie whose admin socket is ``path``; ``timeout`` seconds for each step.

    Raises BookieNotRunningError if nobody answers there, OperatorError if the caller may not open
    the socket, PeerError for an answer that is not a status document.
    """
    connection = _UnixConnection(path, timeout)
    try:
        connection.request("GET", STATUS_URL)
        response = connection.getresponse()
        body = response.read()
    except PermissionError:
        raise OperatorError(
            f"not allowed to open {path}: run this as the user that runs the bookie"
        ) from None
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        raise BookieNotRunningError(f"no bookie is running: nothing answers on {path}") from None
    except (OSError, http.client.HTTPException) as error:
        raise BookieNotRunningError(f"no answer on {path}: {error!r}") from error
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise PeerError(f"{path} answered {response.status} {response.reason}")
    try:
        document = json.loads(body)
    except ValueError as error:
        raise EncodingError(f"{path} answered something that is not JSON: {error}") from None
    return from_json(document)
