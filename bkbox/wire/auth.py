"""AuthMessage: the messages of authentication plugins; opaque to the protocol.

Source: BookkeeperProtocol.proto (AuthMessage).
"""

from __future__ import annotations

from bkbox.base.values import frozen_struct
from bkbox.wire import protobuf
from bkbox.wire.protobuf import Field, Kind, Label, Message

AUTH_DISABLED_PLUGIN = "AuthDisabledPlugin"

FORMAT = Message(
    "AuthMessage",
    Field(1, "authPluginName", Kind.STRING, Label.REQUIRED),
    Field(2, "payload", Kind.BYTES, Label.REQUIRED),
    fields_max=64,
)


@frozen_struct
class AuthMessage:
    """One step of an authentication."""

    plugin: str
    payload: bytes


def encode(message: AuthMessage) -> bytes:
    """The protobuf bytes."""
    return protobuf.encode(FORMAT, {"authPluginName": message.plugin, "payload": message.payload})


def decode(data: bytes | bytearray | memoryview) -> AuthMessage:
    """Raises EncodingError."""
    values = protobuf.decode(FORMAT, data)
    return AuthMessage(values["authPluginName"], values["payload"])
