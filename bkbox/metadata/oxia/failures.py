"""What a failed call to an Oxia server means.

A server says the reason in an ErrorInfo of the domain ``oxia.io``; one before 0.17 in its text alone. Three kinds:

- *NotLeaderError*: this server does not lead the shard. The request was not carried out; another server takes it.
- *definite refusals*, which a repetition does not mend: credentials, an unknown namespace, a session that has
  expired, notifications that are switched off. Not carried out.
- everything else, LostReplyError: the server or the way to it failed, and a write may have been carried out. That
  includes every reason not known here.

Source: errors.go, grpc_errors.go.
"""

from __future__ import annotations

from typing import NamedTuple

import grpc

from bkbox.errors import EncodingError, MetadataError
from bkbox.metadata.oxia import messages
from bkbox.metadata.tree.nodes import LostReplyError
from bkbox.wire.protobuf import decode

_DETAILS = "grpc-status-details-bin"
_DOMAIN = "oxia.io"


class NotLeaderError(MetadataError):
    """The server does not lead the shard; ``leader`` does, if that is known. Stays inside this package."""

    def __init__(self, text: str, leader: str | None = None) -> None:
        super().__init__(text)
        self.leader = leader


class SessionExpiredError(MetadataError):
    """There is no such session any more. Stays inside this package."""


class OxiaRefusalError(MetadataError):
    """The server refuses the request, and would again."""


_REASONS: dict[str, type[MetadataError]] = {
    "NODE_IS_NOT_LEADER": NotLeaderError,
    "SHARD_NOT_FOUND": NotLeaderError,
    "SESSION_NOT_FOUND": SessionExpiredError,
    "NAMESPACE_NOT_FOUND": OxiaRefusalError,
    "INVALID_SESSION_TIMEOUT": OxiaRefusalError,
    "NOTIFICATIONS_NOT_ENABLED": OxiaRefusalError,
}
_TEXTS = {
    "node is not leader for shard": "NODE_IS_NOT_LEADER",
    "oxia: node is not leader": "NODE_IS_NOT_LEADER",
    "oxia: session not found": "SESSION_NOT_FOUND",
    "oxia: namespace not found": "NAMESPACE_NOT_FOUND",
    "oxia: invalid session timeout": "INVALID_SESSION_TIMEOUT",
    "oxia: notifications not enabled": "NOTIFICATIONS_NOT_ENABLED",
}
"""Reasons by the beginning of the text."""

_REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)


class _Said(NamedTuple):
    reason: str
    leader: str | None


def meaning_of(server: str, error: grpc.aio.AioRpcError) -> MetadataError:
    """The error to raise for a failed call."""
    details = error.details() or ""
    text = f"Oxia server {server}: {details or error.code().name}"
    said = _said_in_details(error) or _said_in_text(details)
    kind = _REASONS.get(said.reason)
    if kind is NotLeaderError:
        return NotLeaderError(text, said.leader)
    if kind is not None:
        return kind(text)
    return OxiaRefusalError(text) if error.code() in _REFUSALS else LostReplyError(text)


def _said_in_details(error: grpc.aio.AioRpcError) -> _Said | None:
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS and isinstance(value, bytes):
            try:
                return _said_in_status(value)
            except EncodingError:
                return None
    return None


def _said_in_status(data: bytes) -> _Said | None:
    for each in decode(messages.RPC_STATUS, data)["details"]:
        kind, value = each.get("type_url", ""), each.get("value", b"")
        if kind == messages.ERROR_INFO_TYPE:
            info = decode(messages.ERROR_INFO, value)
            if info.get("domain") == _DOMAIN:
                texts = {part.get("key"): part.get("value") for part in info["metadata"]}
                return _Said(info.get("reason", ""), texts.get("leader") or None)
        elif kind.endswith(messages.LEADER_HINT_TYPE):
            leader = decode(messages.LEADER_HINT, value).get("leader")
            return _Said("NODE_IS_NOT_LEADER", leader or None)
    return None


def _said_in_text(text: str) -> _Said:
    found = [reason for start, reason in _TEXTS.items() if text.startswith(start)]
    return _Said(found[0] if found else "", None)
