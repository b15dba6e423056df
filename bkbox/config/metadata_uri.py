"""URIs of metadata stores.

``sqlite:PATH``
    the embedded store, a file of this host

``zk[+LAYOUT]://HOST:PORT[;HOST:PORT…]/ROOT``
    ZooKeeper servers and the root of the cluster's tree. LAYOUT is ``flat``, ``hierarchical`` or
    ``longhierarchical``; without it, or with ``null``, the cluster's own layout is used.
    Source: ZKMetadataDriverBase.java, ServiceURI.java.

    After a ``?``, joined by ``&``, the credentials for ZooKeeper, as absolute paths of files: ``secret_file`` with
    ``USER:PASSWORD`` (scheme digest; znodes created belong to that user alone, as with Java's zkEnableSecurity),
    ``tls_ca_file`` (TLS), ``tls_certificate_file`` and ``tls_key_file`` (a client certificate).
"""

from __future__ import annotations

import re
from pathlib import Path

from bkbox.base.text import quoted
from bkbox.base.values import frozen_struct
from bkbox.config.values import join_address, split_address

FORMS = "sqlite:PATH or zk://HOST:PORT[;HOST:PORT…]/ROOT"
ZNODE_PREFIX = "znode:"
"""Prefix of a znode's path where a file could be named as well."""

LAYOUTS = ("flat", "hierarchical", "longhierarchical")


class WrongUriError(ValueError):
    """The text is not the URI of a metadata store; the message says why."""


@frozen_struct
class SqliteUri:
    """A file on this host."""

    path: Path


@frozen_struct
class ZooKeeperAccess:
    """Files with the credentials for ZooKeeper; None for absent ones."""

    secret_file: Path | None = None
    tls_ca_file: Path | None = None
    tls_certificate_file: Path | None = None
    tls_key_file: Path | None = None


_ACCESS = ("secret_file", "tls_ca_file", "tls_certificate_file", "tls_key_file")

OPEN = ZooKeeperAccess()


@frozen_struct
class ZooKeeperUri:
    """``hosts``: HOST:PORT each; ``root`` begins with a slash and ends without; ``layout`` is one
    of LAYOUTS, or None for the cluster's own."""

    hosts: tuple[str, ...]
    root: str
    layout: str | None
    access: ZooKeeperAccess = OPEN


def parse(uri: str) -> SqliteUri | ZooKeeperUri:
    """Parses a URI. Raises WrongUriError."""
    scheme, colon, rest = uri.partition(":")
    if scheme == "sqlite" and rest:
        return SqliteUri(Path(rest))
    if scheme == "zk" or scheme.startswith("zk+"):
        return _zookeeper(scheme, rest)
    raise WrongUriError(
        f"has to be {FORMS}" + ("" if colon else ", for example sqlite:/var/lib/bkbox.db")
    )


def _zookeeper(scheme: str, rest: str) -> ZooKeeperUri:
    layout = scheme.partition("+")[2] or None
    if layout == "ms":
        raise WrongUriError("the layout ms (ledgers in a metastore) is not supported")
    if layout not in (None, "null", *LAYOUTS):
        raise WrongUriError(f"the layout {layout} is not known: use one of {', '.join(LAYOUTS)}")
    rest, question, query = rest.partition("?")
    access = _access(query) if question else OPEN
    match = re.fullmatch(r"//([^/]*)(/.*)?", rest)
    if match is None or not match[1]:
        raise WrongUriError("names no server: has to be zk://HOST:PORT[;HOST:PORT…]/ROOT")
    hosts = []
    for text in re.split("[;,]", match[1]):
        address = split_address(text)
        if address is None:
            raise WrongUriError(
                f"{quoted(text)} has to be HOST:PORT, for example zk1.example.com:2181"
            )
        hosts.append(join_address(*address))
    root = (match[2] or "").rstrip("/")
    names = root.split("/")[1:]
    if not names or any(name in ("", ".", "..") for name in names):
        raise WrongUriError("has to end with the root of the cluster, for example /ledgers")
    return ZooKeeperUri(tuple(hosts), root, None if layout == "null" else layout, access)


def _access(query: str) -> ZooKeeperAccess:
    files: dict[str, Path] = {}
    for part in query.split("&"):
        name, equals, path = part.partition("=")
        if name not in _ACCESS or not equals or name in files:
            raise WrongUriError(
                f"{quoted(part)}: has to be NAME=FILE, each name once, of {', '.join(_ACCESS)}"
            )
        if not path.startswith("/"):
            raise WrongUriError(f"{name}: {quoted(path)} has to be an absolute path")
        files[name] = Path(path)
    found = ZooKeeperAccess(**files)
    if (found.tls_certificate_file is None) != (found.tls_key_file is None):
        raise WrongUriError("tls_certificate_file and tls_key_file belong together")
    if found.tls_key_file is not None and found.tls_ca_file is None:
        raise WrongUriError("a certificate needs tls_ca_file: the ones that sign ZooKeeper's")
    return found


def query_of(access: ZooKeeperAccess) -> str:
    """Inverse: the query part, with its question mark."""
    found = [(name, getattr(access, name)) for name in _ACCESS]
    text = "&".join(f"{name}={path}" for name, path in found if path is not None)
    return f"?{text}" if text else ""
