"""Certificates for tests: an authority, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Pair:
    """A certificate and its key, as files."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.certificate = certificate
        self.key = key


class Authority:
    """Signs certificates; its own is in ``file``."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        made = (
            self._builder(self._name, self._key, _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = ("127.0.0.1", "localhost"),
        *,
        unit: str | None = None,
        lasts: datetime.timedelta = _DAY,
        file: str | None = None,
    ) -> Pair:
        """A certificate for these hosts. ``lasts``: below 0 for one that has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if unit is not None:
            subject.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
        made = (
            self._builder(x509.Name(subject), key, lasts)
            .add_extension(x509.SubjectAlternativeName(list(map(_san, hosts))), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        stem = self._folder / (file or name)
        pair = Pair(stem.with_suffix(".crt"), stem.with_suffix(".key"))
        pair.key.touch(0o600)
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        pair.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        return pair

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: datetime.timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 3 * _DAY)
            .not_valid_after(now + lasts)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


def _san(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def secret_file(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.write_text(text)
    return path
