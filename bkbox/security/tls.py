"""TLS contexts with today's defaults: TLS 1.2 at least, OpenSSL's own ciphers without those of no secrecy, no
compression, no renegotiation, tickets only as TLS 1.3 has them.

Certificates are given as text, not as files: the process that may read the files hands the text on. OpenSSL takes a
chain and its key from files only; those are anonymous, in memory, and gone at once.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bkbox.base.text import error_text
from bkbox.errors import BootError

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers of TLS 1.2; those of 1.3 are all good."""


def server_context(certificate: str, key: str, ca: str | None, clients: str) -> ssl.SSLContext:
    """The context of a bookie. ``clients``: ``none``, ``asked`` or ``required`` to show a certificate that ``ca``
    signed.

    Raises BootError for unusable values.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_TICKET
    context.num_tickets = 0
    _load_own(context, certificate, key)
    if clients != "none":
        if ca is None:
            raise BootError("certificates of clients need tls_ca_file: the ones that sign them")
        _load_ca(context, ca)
        context.verify_mode = ssl.CERT_REQUIRED if clients == "required" else ssl.CERT_OPTIONAL
    return context


def client_context(
    ca: str | None, certificate: str | None, key: str | None, *, check_host_name: bool
) -> ssl.SSLContext:
    """The context of a client; without ``ca`` the system's certificates count. Raises BootError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    context.check_hostname = check_host_name
    if ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_ca(context, ca)
    if certificate is not None and key is not None:
        _load_own(context, certificate, key)
    return context


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(_CIPHERS)


def _load_own(context: ssl.SSLContext, certificate: str, key: str) -> None:
    try:
        with _in_memory(certificate) as chain, _in_memory(key) as private:
            # An empty password: a key that needs one is refused instead of prompting on the terminal.
            context.load_cert_chain(chain, private, password="")
    except ssl.SSLError as error:
        raise BootError(
            f"the certificate (tls_certificate_file) and the key (tls_key_file) cannot be used: {_reason(error)}. Both "
            "have to be PEM, belong together, and the key must have no password"
        ) from None


def _load_ca(context: ssl.SSLContext, ca: str) -> None:
    try:
        context.load_verify_locations(cadata=ca)
    except (ssl.SSLError, ValueError) as error:
        raise BootError(f"tls_ca_file holds no certificates in PEM: {error_text(error)}") from None


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    fd = os.memfd_create("bkbox-tls", os.MFD_CLOEXEC)
    try:
        os.write(fd, text.encode())
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


_OU_ROLES = re.compile(r"(?:^|;)\s*0:\s*([^,;]+)")
"""The place of roles in BookKeeper's certificates: ``0:ROLE,ROLE;1:CLUSTER,…``. Source: CertUtils.java,
BookieAuthZFactory.java.
"""


def name_of(certificate: Mapping[str, Any] | None) -> str | None:
    """The name in a verified certificate (``SSLObject.getpeercert``): the first role of its organisational unit in
    BookKeeper's form, else the common name of its subject.
    """
    fields = dict(field for group in (certificate or {}).get("subject", ()) for field in group)
    role = _OU_ROLES.search(str(fields.get("organizationalUnitName", "")))
    name = role[1].strip() if role else str(fields.get("commonName", ""))
    return name or None
