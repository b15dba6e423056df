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

``metadata-store:[zk:]HOST:PORT[,HOST:PORT…][/CHROOT]``
    the same tree as Pulsar's driver of that name keeps it: its root is ``CHROOT/ledgers``, so ``/ledgers`` where no
    chroot is named. It knows the hierarchical layout only. The same credentials may follow a ``?``.
    Source: pulsar-metadata, AbstractMetadataDriver.java, ZKMetadataStore.java.
"""

from __future__ import annotations

import re
from pathlib import Path

from bkbox.base.text import quoted
from bkbox.base.values import frozen_struct
from bkbox.config.values import join_address, split_address

FORMS = "sqlite:PATH, zk://HOST:PORT[;…]/ROOT or metadata-store:zk:HOST:PORT[,…][/CHROOT]"
ZNODE_PREFIX = "znode:"
"""Prefix of a znode's path where a file could be named as well."""

LAYOUTS = ("flat", "hierarchical", "longhierarchical")

METADATA_STORE = "metadata-store"
_ROOT_BELOW_CHROOT = "/ledgers"
OTHER_STORES = ("oxia", "etcd", "rocksdb", "memory")
"""Stores of Pulsar's driver that bkbox does not know."""


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
    of LAYOUTS, or None for the cluster's own; ``pulsar``: the tree is kept as by Pulsar's driver, not by BookKeeper's
    own."""

    hosts: tuple[str, ...]
    root: str
    layout: str | None
    access: ZooKeeperAccess = OPEN
    pulsar: bool = False

    def __str__(self) -> str:
        """The URI, in one of its forms."""
        if self.pulsar:
            chroot = self.root.removesuffix(_ROOT_BELOW_CHROOT)
            return f"{METADATA_STORE}:zk:{','.join(self.hosts)}{chroot}{_query(self.access)}"
        scheme = "zk" if self.layout is None else f"zk+{self.layout}"
        return f"{scheme}://{';'.join(self.hosts)}{self.root}{_query(self.access)}"


def parse(uri: str) -> SqliteUri | ZooKeeperUri:
    """Parses a URI. Raises WrongUriError."""
    scheme, colon, rest = uri.partition(":")
    if scheme == "sqlite" and rest:
        return SqliteUri(Path(rest))
    if scheme == "zk" or scheme.startswith("zk+"):
        return _zookeeper(scheme, rest)
    if scheme == METADATA_STORE:
        return _metadata_store(rest)
    raise WrongUriError(
        f"has to be {FORMS}" + ("" if colon else ", for example sqlite:/var/lib/bkbox.db")
    )


def _zookeeper(scheme: str, rest: str) -> ZooKeeperUri:
    layout = scheme.partition("+")[2] or None
    if layout == "ms":
        raise WrongUriError("the layout ms (ledgers in a metastore) is not supported")
    if layout not in (None, "null", *LAYOUTS):
        raise WrongUriError(f"the layout {layout} is not known: use one of {', '.join(LAYOUTS)}")
    rest, access = _without_query(rest)
    match = re.fullmatch(r"//([^/]*)(/.*)?", rest)
    if match is None or not match[1]:
        raise WrongUriError("names no server: has to be zk://HOST:PORT[;HOST:PORT…]/ROOT")
    hosts, root = _hosts(match[1]), (match[2] or "").rstrip("/")
    if not root or not _is_path(root):
        raise WrongUriError("has to end with the root of the cluster, for example /ledgers")
    return ZooKeeperUri(hosts, root, None if layout == "null" else layout, access)


def _metadata_store(text: str) -> ZooKeeperUri:
    store, colon, _ = text.partition(":")
    if colon and store in OTHER_STORES:
        raise WrongUriError(f"bkbox keeps no metadata in {store}: has to be {FORMS}")
    rest, access = _without_query(text.removeprefix("zk:"))
    hosts, slash, chroot = rest.partition("/")
    if not hosts:
        raise WrongUriError(
            f"names no server: has to be {METADATA_STORE}:zk:HOST:PORT[,HOST:PORT…][/CHROOT], without //"
        )
    chroot = (slash + chroot).rstrip("/")
    if not _is_path(chroot):
        raise WrongUriError(f"{quoted(chroot)} is not the path of a znode")
    return ZooKeeperUri(_hosts(hosts), chroot + _ROOT_BELOW_CHROOT, None, access, pulsar=True)


def _hosts(text: str) -> tuple[str, ...]:
    hosts = []
    for each in re.split("[;,]", text):
        address = split_address(each)
        if address is None:
            raise WrongUriError(
                f"{quoted(each)} has to be HOST:PORT, for example zk1.example.com:2181"
            )
        hosts.append(join_address(*address))
    return tuple(hosts)


def _is_path(path: str) -> bool:
    """True for the path of a znode, and for none."""
    return not any(name in ("", ".", "..") for name in path.split("/")[1:])


def _without_query(text: str) -> tuple[str, ZooKeeperAccess]:
    rest, question, query = text.partition("?")
    return rest, _access(query) if question else OPEN


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


def _query(access: ZooKeeperAccess) -> str:
    """The query part, with its question mark."""
    found = [(name, getattr(access, name)) for name in _ACCESS]
    text = "&".join(f"{name}={path}" for name, path in found if path is not None)
    return f"?{text}" if text else ""
