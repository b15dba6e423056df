"""bkbox's own plugin: both sides prove that they know a token, which itself is never sent.

    client   {"user": NAME, "nonce": C}
    bookie   {"nonce": S}
    client   {"proof": HMAC-SHA256(token, "client" C S NAME)}
    bookie   {"proof": HMAC-SHA256(token, "server" C S NAME)}

Nonces are 16 to 128 letters and digits. So an impostor in place of the bookie learns nothing that it could use
elsewhere, and a recorded exchange proves nothing on another connection, which has other nonces. Later messages are
not encrypted: that is the task of TLS.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping

from bkbox.errors import AuthenticationError
from bkbox.security.exchange import Step, shown

PLUGIN = "bkbox-token"

_BYTES_MAX = 1024
_NONCE_MIN, _NONCE_MAX = 16, 128


class Server:
    """The bookie's side."""

    plugin = PLUGIN

    def __init__(self, tokens: Mapping[str, str], nonce: str) -> None:
        """``nonce``: never used before."""
        self._tokens = tokens
        self._nonce = nonce
        self._first: tuple[str, str] | None = None
        self._over = False

    def step(self, payload: bytes) -> Step:
        """Raises AuthenticationError."""
        if self._over:
            raise AuthenticationError("token exchange: the exchange was over already")
        if self._first is None:
            fields = _parse(payload, "user", "nonce")
            self._first = fields["user"], _checked_nonce(fields["nonce"])
            return Step(_message(nonce=self._nonce), None)
        self._over = True
        user, nonce = self._first
        fields = _parse(payload, "proof")
        # An unknown user takes as long as a known one.
        token = self._tokens.get(user, self._nonce)
        expected = _proof(token, "client", nonce, self._nonce, user)
        if (
            not hmac.compare_digest(expected.encode(), fields["proof"].encode())
            or user not in self._tokens
        ):
            raise AuthenticationError(
                f"token exchange: {shown(user, self._tokens)} or the token is wrong"
            )
        return Step(_message(proof=_proof(token, "server", nonce, self._nonce, user)), user)


class Client:
    """The client's side."""

    plugin = PLUGIN

    def __init__(self, user: str, token: str, nonce: str) -> None:
        self._user = user
        self._token = token
        self._nonce = nonce
        self._other = ""

    def begin(self) -> bytes:
        return _message(user=self._user, nonce=self._nonce)

    def step(self, payload: bytes) -> bytes | None:
        """Raises AuthenticationError."""
        if not self._other:
            self._other = _checked_nonce(_parse(payload, "nonce")["nonce"])
            return _message(proof=self._proof("client"))
        found = _parse(payload, "proof")["proof"]
        if not hmac.compare_digest(found.encode(), self._proof("server").encode()):
            raise AuthenticationError("token exchange: the bookie does not know the token")
        return None

    def _proof(self, side: str) -> str:
        return _proof(self._token, side, self._nonce, self._other, self._user)


def _proof(token: str, side: str, client_nonce: str, server_nonce: str, user: str) -> str:
    text = "\0".join((side, client_nonce, server_nonce, user))
    return hmac.digest(token.encode(), text.encode(), "sha256").hex()


def _message(**values: str) -> bytes:
    return json.dumps(values).encode()


def _parse(payload: bytes, *names: str) -> dict[str, str]:
    """Exactly these names, each with a text. Raises AuthenticationError."""
    wrong = AuthenticationError(
        f"token exchange: a message that is not an object with {' and '.join(names)}"
    )
    if len(payload) > _BYTES_MAX:
        raise AuthenticationError(f"token exchange: a message of {len(payload)} bytes")
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(found, dict) or found.keys() != set(names):
        raise wrong
    if not all(isinstance(value, str) and _is_text(value) for value in found.values()):
        raise wrong
    return found


def _is_text(value: str) -> bool:
    """True if the text can be encoded as UTF-8: JSON can name halves of characters."""
    return not any("\ud800" <= char <= "\udfff" for char in value)


def _checked_nonce(nonce: str) -> str:
    if not _NONCE_MIN <= len(nonce) <= _NONCE_MAX or not (nonce.isascii() and nonce.isalnum()):
        raise AuthenticationError("token exchange: a nonce has to be 16 to 128 letters and digits")
    return nonce
