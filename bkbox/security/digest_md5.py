"""SASL DIGEST-MD5 (RFC 2831), both sides: the mechanism of Java's SASL plugins.

It is there for compatibility. MD5 is broken, later messages are neither encrypted nor signed, and an eavesdropper can
guess passwords offline. It belongs inside TLS, and for bkbox's own clients the token plugin (tokens.py) is better.

Pure: nonces are given. Each side is for one connection. A nonce is never accepted twice, because every connection has
its own, and each machine takes one response.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping

from bkbox.base.text import quoted
from bkbox.errors import AuthenticationError
from bkbox.security.exchange import Step, shown

PLUGIN = "sasl"
"""Name on the wire. Source: SASLBookieAuthProvider.java."""

REALM = "bookkeeper"
DIGEST_URI = "bookkeeper/bookkeeper"
"""Service and host, which Java's plugins never set to the real one. Source: SaslConstants.java."""

_FIRST = "00000001"
_CHALLENGE_BYTES_MAX = 2048
_RESPONSE_BYTES_MAX = 4096
"""Values that RFC 2831 allows."""

_DIRECTIVE = re.compile(
    r"[\s,]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s,\"]*))\s*(?:,|$)"
)
_UNQUOTED = re.compile(r"\\(.)")


class Server:
    """The bookie's side: ``step`` takes a message of the client and returns the response."""

    plugin = PLUGIN

    def __init__(self, users: Mapping[str, str], nonce: str) -> None:
        """``nonce``: letters and digits, never used before."""
        self._users = users
        self._nonce = nonce
        self._steps = 0

    def step(self, payload: bytes) -> Step:
        """Raises AuthenticationError."""
        self._steps += 1
        if self._steps == 1:
            if payload:
                raise AuthenticationError("the first message of DIGEST-MD5 is not empty")
            challenge = f'realm="{REALM}",nonce="{self._nonce}",charset=utf-8,algorithm=md5-sess'
            return Step(challenge.encode(), None)
        if self._steps > 2:
            raise AuthenticationError("DIGEST-MD5 was over already")
        return self._verify(_parse(payload, _RESPONSE_BYTES_MAX))

    def _verify(self, fields: Mapping[str, str]) -> Step:
        expected = {"nonce": self._nonce, "nc": _FIRST, "realm": REALM}
        wrong = [name for name, value in expected.items() if fields.get(name) != value]
        if fields.get("qop", "auth") != "auth":
            wrong.append("qop")
        if fields.get("authzid", fields.get("username")) != fields.get("username"):
            wrong.append("authzid")
        wrong += [name for name in ("username", "cnonce", "response") if not fields.get(name)]
        if not fields.get("digest-uri", "").startswith("bookkeeper/"):
            wrong.append("digest-uri")
        if wrong:
            raise AuthenticationError(f"DIGEST-MD5: wrong {', '.join(wrong)}")
        user = fields["username"]
        # An unknown user takes as long as a known one.
        session = _session(user, self._users.get(user, self._nonce), fields)
        good = hmac.compare_digest(
            _response(session, fields, "AUTHENTICATE:").encode(),
            fields["response"].lower().encode(),
        )
        if not good or user not in self._users:
            raise AuthenticationError(
                f"DIGEST-MD5: {shown(user, self._users)} or the password is wrong"
            )
        return Step(f"rspauth={_response(session, fields, ':')}".encode(), user)


class Client:
    """The client's side: ``begin`` gives the first message, ``step`` takes each response and gives the next message."""

    plugin = PLUGIN

    def __init__(self, user: str, password: str, cnonce: str) -> None:
        self._user = user
        self._password = password
        self._cnonce = cnonce
        self._sent: dict[str, str] | None = None

    def begin(self) -> bytes:
        return b""

    def step(self, payload: bytes) -> bytes | None:
        """The next message; None: the bookie has proved that it knows the password, too. Raises AuthenticationError.

        Java's client sends one more, empty message, which no bookie waits for.
        """
        if self._sent is not None:
            fields = _parse(payload, _CHALLENGE_BYTES_MAX)
            session = _session(self._user, self._password, self._sent)
            proof = _response(session, self._sent, ":")
            if not hmac.compare_digest(fields.get("rspauth", "").encode(), proof.encode()):
                raise AuthenticationError("DIGEST-MD5: the bookie does not know the password")
            return None
        fields = _parse(payload, _CHALLENGE_BYTES_MAX)
        if not fields.get("nonce") or fields.get("algorithm") != "md5-sess":
            raise AuthenticationError(
                "DIGEST-MD5: a challenge without a nonce or with another algorithm"
            )
        if "auth" not in fields.get("qop", "auth").split(","):
            raise AuthenticationError(
                f"DIGEST-MD5: the bookie wants qop {quoted(fields['qop'][:40])}"
            )
        sent = {
            "charset": "utf-8",
            "username": self._user,
            "realm": fields.get("realm", REALM),
            "nonce": fields["nonce"],
            "nc": _FIRST,
            "cnonce": self._cnonce,
            "digest-uri": DIGEST_URI,
            "maxbuf": "65536",
            "qop": "auth",
        }
        sent["response"] = _response(
            _session(self._user, self._password, sent), sent, "AUTHENTICATE:"
        )
        self._sent = sent
        return ",".join(
            f"{name}={_QUOTE.get(name, str)(value)}" for name, value in sent.items()
        ).encode()


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


_QUOTE: dict[str, Callable[[str], str]] = dict.fromkeys(
    ("username", "realm", "nonce", "cnonce", "digest-uri"), _quoted
)


def _parse(payload: bytes, bytes_max: int) -> dict[str, str]:
    """The directives of a message. Raises AuthenticationError, also for a repeated directive."""
    if len(payload) > bytes_max:
        raise AuthenticationError(f"DIGEST-MD5: a message of {len(payload)} bytes")
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        raise AuthenticationError("DIGEST-MD5: a message that is not UTF-8") from None
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _DIRECTIVE.match(text, at)
        if match is None:
            raise AuthenticationError(f"DIGEST-MD5: no directive at byte {at}")
        name, quoted, token = match[1].lower(), match[2], match[3]
        if name in found:
            raise AuthenticationError("DIGEST-MD5: a directive is there twice")
        found[name] = token if quoted is None else _UNQUOTED.sub(r"\1", quoted)
        at = match.end()
    return found


def _session(user: str, password: str, fields: Mapping[str, str]) -> bytes:
    """H(A1) of RFC 2831, section 2.1.2.1."""
    secret = b":".join(map(_octets, (user, fields.get("realm", ""), password)))
    authzid = f":{fields['authzid']}" if "authzid" in fields else ""
    return _md5(_md5(secret) + f":{fields['nonce']}:{fields['cnonce']}{authzid}".encode())


def _response(session: bytes, fields: Mapping[str, str], method: str) -> str:
    a2 = _md5((method + fields["digest-uri"]).encode()).hex()
    text = f"{session.hex()}:{fields['nonce']}:{fields['nc']}:{fields['cnonce']}:auth:{a2}"
    return _md5(text.encode()).hex()


def _octets(text: str) -> bytes:
    """ISO 8859-1 where it has all the characters, else UTF-8, as the RFC says."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()  # as the protocol requires, see above
