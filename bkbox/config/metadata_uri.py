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

``metadata-store:oxia://HOST:PORT[/NAMESPACE]``
    the same tree in Oxia, as Pulsar's driver keeps it there: its root is ``/ledgers`` in the namespace, ``default``
    where none is named. After a ``?``: ``token_file`` (a bearer token), ``tls_ca_file``, ``tls_certificate_file`` and
    ``tls_key_file``. Source: pulsar-metadata, OxiaMetadataStoreProvider.java.
"""

from __future__ import annotations

import re
from pathlib import Path

from bkbox.base.text import quoted
from bkbox.base.values import frozen_struct
from bkbox.config.values import join_address, split_address

FORMS = (
    "sqlite:PATH, zk://HOST:PORT[;…]/ROOT, metadata-store:zk:HOST:PORT[,…][/CHROOT] or "
    "metadata-store:oxia://HOST:PORT[/NAMESPACE]"
)
ZNODE_PREFIX = "znode:"
"""Prefix of a znode's path where a file could be named as well."""

LAYOUTS = ("flat", "hierarchical", "longhierarchical")

METADATA_STORE = "metadata-store"
_ROOT_BELOW_CHROOT = "/ledgers"
_OXIA = "oxia://"
DEFAULT_NAMESPACE = "default"
OTHER_STORES = ("oxia", "etcd", "rocksdb", "memory")
"""Stores of Pulsar's driver that bkbox does not know, or not in this form."""


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


_TLS = ("tls_ca_file", "tls_certificate_file", "tls_key_file")
_ZOOKEEPER_ACCESS = ("secret_file", *_TLS)
_OXIA_ACCESS = ("token_file", *_TLS)

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
            return f"{METADATA_STORE}:zk:{','.join(self.hosts)}{chroot}{_query(_ZOOKEEPER_ACCESS, self.access)}"
        scheme = "zk" if self.layout is None else f"zk+{self.layout}"
        return (
            f"{scheme}://{';'.join(self.hosts)}{self.root}{_query(_ZOOKEEPER_ACCESS, self.access)}"
        )


@frozen_struct
class OxiaAccess:
    """Files with the credentials for Oxia; None for absent ones."""

    token_file: Path | None = None
    tls_ca_file: Path | None = None
    tls_certificate_file: Path | None = None
    tls_key_file: Path | None = None


@frozen_struct
class OxiaUri:
    """``host``: HOST:PORT of any server."""

    host: str
    namespace: str
    access: OxiaAccess = OxiaAccess()

    @property
    def root(self) -> str:
        return _ROOT_BELOW_CHROOT

    def __str__(self) -> str:
        query = _query(_OXIA_ACCESS, self.access)
        return f"{METADATA_STORE}:{_OXIA}{self.host}/{self.namespace}{query}"


MetadataUri = SqliteUri | ZooKeeperUri | OxiaUri


def parse(uri: str) -> MetadataUri:
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
    rest, files = _without_query(rest, _ZOOKEEPER_ACCESS)
    access = ZooKeeperAccess(**files)
    match = re.fullmatch(r"//([^/]*)(/.*)?", rest)
    if match is None or not match[1]:
        raise WrongUriError("names no server: has to be zk://HOST:PORT[;HOST:PORT…]/ROOT")
    hosts, root = _hosts(match[1]), (match[2] or "").rstrip("/")
    if not root or not _is_path(root):
        raise WrongUriError("has to end with the root of the cluster, for example /ledgers")
    return ZooKeeperUri(hosts, root, None if layout == "null" else layout, access)


def _metadata_store(text: str) -> ZooKeeperUri | OxiaUri:
    if text.startswith(_OXIA):
        return _oxia(text.removeprefix(_OXIA))
    store, colon, _ = text.partition(":")
    if colon and store in OTHER_STORES:
        raise WrongUriError(f"bkbox keeps no metadata in {store}: has to be {FORMS}")
    rest, files = _without_query(text.removeprefix("zk:"), _ZOOKEEPER_ACCESS)
    access = ZooKeeperAccess(**files)
    hosts, slash, chroot = rest.partition("/")
    if not hosts:
        raise WrongUriError(
            f"names no server: has to be {METADATA_STORE}:zk:HOST:PORT[,HOST:PORT…][/CHROOT], without //"
        )
    chroot = (slash + chroot).rstrip("/")
    if not _is_path(chroot):
        raise WrongUriError(f"{quoted(chroot)} is not the path of a znode")
    return ZooKeeperUri(_hosts(hosts), chroot + _ROOT_BELOW_CHROOT, None, access, pulsar=True)


def _oxia(text: str) -> OxiaUri:
    rest, files = _without_query(text, _OXIA_ACCESS)
    host, _, namespace = rest.partition("/")
    if not host or "/" in namespace:
        raise WrongUriError(f"has to be {METADATA_STORE}:{_OXIA}HOST:PORT[/NAMESPACE]")
    hosts = _hosts(host)
    if len(hosts) > 1:
        raise WrongUriError(
            "names several servers: Pulsar's driver takes one of Oxia's, which knows the others"
        )
    return OxiaUri(hosts[0], namespace or DEFAULT_NAMESPACE, OxiaAccess(**files))


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


def _without_query(text: str, names: tuple[str, ...]) -> tuple[str, dict[str, Path]]:
    """The text before the question mark, and the files by these names behind it."""
    rest, question, query = text.partition("?")
    return rest, _files(query, names) if question else {}


def _files(query: str, names: tuple[str, ...]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for part in query.split("&"):
        name, equals, path = part.partition("=")
        if name not in names or not equals or name in files:
            raise WrongUriError(
                f"{quoted(part)}: has to be NAME=FILE, each name once, of {', '.join(names)}"
            )
        if not path.startswith("/"):
            raise WrongUriError(f"{name}: {quoted(path)} has to be an absolute path")
        files[name] = Path(path)
    if ("tls_certificate_file" in files) != ("tls_key_file" in files):
        raise WrongUriError("tls_certificate_file and tls_key_file belong together")
    if "tls_key_file" in files and "tls_ca_file" not in files:
        raise WrongUriError("a certificate needs tls_ca_file: the ones that sign the server's")
    return files


def _query(names: tuple[str, ...], access: ZooKeeperAccess | OxiaAccess) -> str:
    """The query part, with its question mark."""
    found = [(name, getattr(access, name)) for name in names]
    text = "&".join(f"{name}={path}" for name, path in found if path is not None)
    return f"?{text}" if text else ""
