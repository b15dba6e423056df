"""Payloads of callers: bytes, or any object with the buffer protocol, which is copied."""

from __future__ import annotations

from bkbox.errors import PayloadTypeError


def payload_of(given: object) -> bytes:
    """The bytes to write for ``given``. Never ``bytes(given)``: that makes five zeros of the number 5. Raises
    PayloadTypeError.
    """
    if isinstance(given, bytes):
        return given
    try:
        return memoryview(given).tobytes()  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # a memoryview that was released is a ValueError
        hint = "encode it, with .encode()" if isinstance(given, str) else "give bytes"
        raise PayloadTypeError(f"a payload is of type {type(given).__name__}: {hint}") from None
