"""Ask a running bookie. Blocking: it is the CLI and scripts that ask.

Every function takes the path of the bookie's admin socket (``admin_socket_path``) and raises BookieNotRunningError if
nobody answers there, OperatorError if the caller may not open the socket, PeerError for an answer that is not one,
and what the bookie met.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from bkbox.admin.paths import JOBS_URL, STATUS_URL, short_address
from bkbox.admin.status import Status, from_json
from bkbox.errors import BookieNotRunningError, EncodingError, OperatorError, PeerError
from bkbox.ipc.channel import raise_refusal
from bkbox.ipc.messages import Refused
from bkbox.jobs import job as documents
from bkbox.jobs.job import Job, JobAction, JobKind

_TIMEOUT_S = 5.0


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


def fetch_status(path: Path, timeout: float = _TIMEOUT_S) -> Status:
    """The status of the bookie; ``timeout`` seconds for each step."""
    return from_json(ask(path, "GET", STATUS_URL, timeout=timeout))


def start_job(path: Path, kind: JobKind, arguments: Mapping[str, str]) -> Job:
    """Start a job and return it as it is then. Raises JobRefusedError."""
    values = {"kind": kind.value, "arguments": dict(arguments)}
    return documents.from_json(ask(path, "POST", JOBS_URL, values))


def jobs(path: Path) -> list[Job]:
    """All jobs that are remembered, the oldest first."""
    found = ask(path, "GET", JOBS_URL)
    if not isinstance(found, list):
        raise EncodingError(f"{path} answered {type(found).__name__} where a list of jobs is due")
    return [documents.from_json(item) for item in found]


def job(path: Path, number: int) -> Job:
    """One job. Raises NoSuchJobError."""
    return documents.from_json(ask(path, "GET", f"{JOBS_URL}/{number}"))


def control_job(
    path: Path, number: int, action: JobAction, *, bytes_per_second: int | None = None
) -> Job:
    """Do something to a job and return it as it is then. ``bytes_per_second`` goes with RATE; 0 for no limit.

    Raises NoSuchJobError, JobRefusedError.
    """
    values = {} if bytes_per_second is None else {"bytes_per_second": bytes_per_second}
    return documents.from_json(ask(path, "POST", f"{JOBS_URL}/{number}/{action.value}", values))


def pace_jobs(path: Path, bytes_per_second: int | None) -> None:
    """Set the speed limit of all jobs together, until the bookie ends: 0 for none, None for what is configured."""
    ask(path, "POST", f"{JOBS_URL}/all/rate", {"bytes_per_second": bytes_per_second})


def ask(
    path: Path,
    method: Literal["GET", "POST"],
    url: str,
    values: Mapping[str, Any] | None = None,
    timeout: float = _TIMEOUT_S,
) -> object:
    """What a route of the admin server answers; ``values`` are what it is told. ``timeout`` seconds for each step."""
    connection = _UnixConnection(path, timeout)
    body = None if values is None else json.dumps(dict(values))
    try:
        connection.request(method, url, body)
        response = connection.getresponse()
        answer = response.read()
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
    if response.status == http.HTTPStatus.NOT_FOUND:
        raise PeerError(
            f"{path} does not know {url}: the bookie runs another version of bkbox; restart it"
        )
    if response.status not in (http.HTTPStatus.OK, http.HTTPStatus.CONFLICT):
        raise PeerError(f"{path} answered {response.status} {response.reason}")
    try:
        found: object = json.loads(answer)
    except ValueError as error:
        raise EncodingError(f"{path} answered something that is not JSON: {error}") from None
    if response.status == http.HTTPStatus.CONFLICT:
        _raise_what_it_met(path, found)
    return found


def _raise_what_it_met(path: Path, found: object) -> None:
    match found:
        case {"error": str(kind), "text": str(text)}:
            raise_refusal(Refused(error=kind, text=text))
        case _:
            raise EncodingError(f"{path} answered an error that does not say which")
