"""Blocking client of a running bookie's admin API, for the CLI and scripts.

Every function takes the address of the admin API: the path of its socket (``admin_socket_path``), or a ``Remote``
(remote.py). It raises BookieNotRunningError if no bookie listens there, BookieUnresponsiveError if one listens and does
not answer, OperatorError if the caller has no permission, AuthenticationError if TLS with it fails, PeerError for a
malformed response, and the bookie's own error.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn

from bkbox.api.admin.cluster_members import Member
from bkbox.api.admin.remote import Remote
from bkbox.api.admin.socket_path import (
    BOOKIES_URL,
    CREDENTIALS,
    JOBS_URL,
    STATUS_URL,
    short_address,
)
from bkbox.api.admin.status import Status, from_json
from bkbox.base.documents import from_document, json_kind
from bkbox.base.text import error_text
from bkbox.errors import (
    AuthenticationError,
    BookieNotRunningError,
    BookieUnresponsiveError,
    EncodingError,
    NoSuchRouteError,
    OperatorError,
    PeerError,
)
from bkbox.ipc.channel import raise_refusal
from bkbox.ipc.messages.message import Refused
from bkbox.jobs import job as documents
from bkbox.jobs.job import Job, JobAction, JobKind

Address = Path | Remote

_TIMEOUT_S = 5.0
_CLUSTER_S = 15.0
"""Longer, as the bookie has to read the metadata store, and may have to run a script for racks."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self.listener = 0
        """The process that listens; 0 before ``connect``."""

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self.timeout)
            with short_address(self._path) as address:
                sock.connect(address)
                folder_user = os.stat(os.path.dirname(address)).st_uid
            self.listener = _refuse_strangers(sock, self._path, folder_user)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


def _refuse_strangers(sock: socket.socket, path: Path, folder_user: int) -> int:
    """The process that listens. Raises AuthenticationError unless it runs as the caller's user, root, or the owner of
    the socket's folder. Other users with write access there could otherwise receive what operators send."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, user, _group = CREDENTIALS.unpack(raw)
    if user not in (0, os.geteuid(), folder_user):
        raise AuthenticationError(
            f"{path} is not the socket of a bookie of ours: process {pid} of user {user} answers there, and the folder "
            f"belongs to user {folder_user}; nothing was asked. Remove it, and set run_dir to a folder in which only "
            "the bookie's user may write"
        )
    return int(pid)


def fetch_status(address: Address, timeout: float = _TIMEOUT_S) -> Status:
    """The status of the bookie. ``timeout``: seconds for each step."""
    return from_json(ask(address, "GET", STATUS_URL, timeout=timeout))


def start_job(address: Address, kind: JobKind, arguments: Mapping[str, str]) -> Job:
    """Starts a job and returns its state then. Raises JobRefusedError."""
    values = {"kind": kind.value, "arguments": dict(arguments)}
    return documents.from_json(ask(address, "POST", JOBS_URL, values))


def jobs(address: Address) -> list[Job]:
    """All jobs that the bookie remembers, the oldest first."""
    found = ask(address, "GET", JOBS_URL)
    if not isinstance(found, list):
        raise EncodingError(f"{address} answered {json_kind(found)} where a list of jobs is due")
    return [documents.from_json(item) for item in found]


def job(address: Address, number: int) -> Job:
    """One job. Raises NoSuchJobError."""
    return documents.from_json(ask(address, "GET", f"{JOBS_URL}/{number}"))


def control_job(
    address: Address, number: int, action: JobAction, *, bytes_per_second: int | None = None
) -> Job:
    """Applies an action to a job and returns its state then. ``bytes_per_second`` goes with RATE; 0 for no limit.

    Raises NoSuchJobError, JobRefusedError.
    """
    values = None if bytes_per_second is None else {"bytes_per_second": bytes_per_second}
    return documents.from_json(ask(address, "POST", f"{JOBS_URL}/{number}/{action.value}", values))


def bookies(address: Address) -> list[Member]:
    """The bookies of the cluster, by id, as the bookie sees them."""
    found = ask(address, "GET", BOOKIES_URL, timeout=_CLUSTER_S)
    if not isinstance(found, list):
        raise EncodingError(f"{address} answered {json_kind(found)} where bookies are due")
    return [from_document(Member, each, "bookie") for each in found]


def pace_jobs(address: Address, bytes_per_second: int | None) -> None:
    """Sets the rate limit of all jobs together, until the bookie ends: 0 for none, None for the configured one."""
    ask(address, "POST", f"{JOBS_URL}/all/rate", {"bytes_per_second": bytes_per_second})


def ask(
    address: Address,
    method: Literal["GET", "POST"],
    url: str,
    values: Mapping[str, Any] | None = None,
    timeout: float = _TIMEOUT_S,
) -> object:
    """The response of a route of the admin API; ``values`` are the request's body. ``timeout``: seconds for each
    step."""
    raw = ask_text(address, method, url, values, timeout)
    try:
        found: object = json.loads(raw)
    except ValueError as error:
        raise EncodingError(f"{address} answered something that is not JSON: {error}") from None
    return found


def ask_text(
    address: Address,
    method: Literal["GET", "POST"],
    url: str,
    values: Mapping[str, Any] | None = None,
    timeout: float = _TIMEOUT_S,
) -> bytes:
    """The same for a response of any kind."""
    headers = {}
    connection: http.client.HTTPConnection
    if isinstance(address, Remote):
        connection = _connection_to(address, timeout)
        if address.token:
            headers["Authorization"] = f"Bearer {address.token}"
    else:
        connection = _UnixConnection(address, timeout)
    body = None
    if values is not None:
        body = json.dumps(dict(values))
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, url, body, headers)
        response = connection.getresponse()
        raw = response.read()
    except PermissionError:
        raise OperatorError(
            f"not allowed to open {address}: run this as the user that runs the bookie"
        ) from None
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        raise BookieNotRunningError(f"no bookie is running: nothing answers on {address}") from None
    except (OSError, http.client.HTTPException) as error:
        if isinstance(address, Remote):
            _raise_tls_error(address, error)
        if connection.sock is not None and isinstance(error, TimeoutError):
            raise BookieUnresponsiveError(_silence(address, connection, timeout)) from error
        raise BookieNotRunningError(f"no answer on {address}: {error_text(error)}") from error
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        _raise_http_error(address, url, response, raw)
    return raw


def _silence(address: Address, connection: http.client.HTTPConnection, timeout: float) -> str:
    text = f"the bookie at {address} runs and has not answered within {timeout:g} s: it hangs, or is stopped"
    if isinstance(connection, _UnixConnection):
        return f"{text}. See: ps -o pid,stat,wchan,args -p {connection.listener}"
    return text


def _connection_to(there: Remote, timeout: float) -> http.client.HTTPConnection:
    if there.tls is None:
        return http.client.HTTPConnection(there.host, there.port, timeout=timeout)
    return http.client.HTTPSConnection(there.host, there.port, timeout=timeout, context=there.tls)


def _raise_tls_error(there: Remote, error: Exception) -> None:
    """Raises AuthenticationError if TLS failed: in that case nothing was sent."""
    if there.tls is None:
        if isinstance(error, http.client.RemoteDisconnected):
            raise BookieNotRunningError(
                f"{there} closed the connection without an answer: if it speaks TLS, it is https://"
            ) from error
        return
    import ssl  # loaded already

    if isinstance(error, ssl.SSLCertVerificationError):
        raise AuthenticationError(
            f"{there} shows a certificate that is not accepted: {error.verify_message}; nothing was asked. Whose "
            "certificates are, is said by tls_ca_file in the file that BKBOX_CLIENT_FILE names"
        ) from error
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        raise AuthenticationError(
            f"{there}: no TLS with what answers there: {reason}. It may speak plain HTTP, or want a certificate "
            "(tls_certificate_file and tls_key_file in the file that BKBOX_CLIENT_FILE names)"
        ) from error


def _raise_http_error(
    address: Address, url: str, response: http.client.HTTPResponse, raw: bytes
) -> NoReturn:
    try:
        found = json.loads(raw)
    except ValueError:
        found = None
    match found:
        case {"error": str(kind), "detail": str(text)}:
            if kind == NoSuchRouteError.__name__:
                raise NoSuchRouteError(
                    f"{address} does not know {url}: the bookie runs another version of bkbox; restart it"
                )
            raise_refusal(Refused(error=kind, text=text))
        case _:
            raise PeerError(f"{address} answered {response.status} {response.reason}")
