"""Errors of the admin API: RFC 9457's problem details, extended by the error's type.

``error`` is the name of the class in bkbox/errors.py, so that the client raises the same error as the bookie;
``detail`` says what is wrong and, if something can be done, what.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

from bkbox.errors import (
    AccessDeniedError,
    BadRequestError,
    BkboxError,
    BugError,
    InvalidIdError,
    MetadataUnavailableError,
    NoSuchJobError,
    NoSuchLedgerError,
    NoSuchRouteError,
    RequestTimeoutError,
)

CONTENT_TYPE = "application/problem+json"

_STATUSES: dict[type[BkboxError], HTTPStatus] = {
    BadRequestError: HTTPStatus.BAD_REQUEST,
    InvalidIdError: HTTPStatus.BAD_REQUEST,
    AccessDeniedError: HTTPStatus.FORBIDDEN,
    NoSuchRouteError: HTTPStatus.NOT_FOUND,
    NoSuchJobError: HTTPStatus.NOT_FOUND,
    NoSuchLedgerError: HTTPStatus.NOT_FOUND,
    MetadataUnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    RequestTimeoutError: HTTPStatus.GATEWAY_TIMEOUT,
    BugError: HTTPStatus.INTERNAL_SERVER_ERROR,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """The body of an error response."""

    type: str
    title: str
    status: int
    detail: str
    error: str


class HttpRefusedError(BkboxError):
    """A refused request with an HTTP status of its own; ``error`` is the class that the response names."""

    def __init__(
        self, status: HTTPStatus, text: str, error: type[BkboxError] = BadRequestError
    ) -> None:
        super().__init__(text)
        self.status = status
        self.error = error


def problem_of(error: BkboxError | TimeoutError) -> Problem:
    """The response to a request that failed with this error. An error that is not in the table is a conflict (409)."""
    if isinstance(error, HttpRefusedError):
        status, kind = error.status, error.error
    elif isinstance(error, BkboxError):
        kind = type(error)
        status = _STATUSES.get(kind, HTTPStatus.CONFLICT)
    else:
        status, kind = HTTPStatus.GATEWAY_TIMEOUT, RequestTimeoutError
    text = str(error) or "a process of the bookie, or a disk, did not answer in time"
    return Problem("about:blank", status.phrase, int(status), text, kind.__name__)


def to_json(problem: Problem) -> dict[str, Any]:
    return asdict(problem)
