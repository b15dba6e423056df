"""Tries what a start opens, with the code of the start, and releases it: files of secrets and certificates, folders,
addresses, scripts, an embedded metadata store.

The content of the disks and the state of the cluster are not part of the configuration: `bkbox doctor` checks those.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bkbox.api.admin.server import start_tcp
from bkbox.api.admin.tcp_access import TcpAccess, tcp_access_of
from bkbox.client.connection.handshake import ClientHandshake
from bkbox.client.options import ClientOptions
from bkbox.client.placement.topology import topology_of_files
from bkbox.config.load import Problem, in_order
from bkbox.config.metadata_uri import ZNODE_PREFIX, SqliteUri, ZooKeeperUri, parse
from bkbox.config.schema import SCHEMA, Config, address_of, kind_of
from bkbox.config.values import File
from bkbox.errors import BkboxError, BootError, ConfigError
from bkbox.metadata import check_oxia, connect
from bkbox.supervisor import access_policy, repair_config
from bkbox.supervisor.boot import startup_resources
from bkbox.supervisor.boot.other_writers import other_writers


class Failed(NamedTuple):
    """A refusal. ``key``: of the configuration; ``text``: the message of a start."""

    key: str
    text: str


def problems(config: Config, running: Mapping[str, object]) -> list[Problem]:
    """The same as ``failures``, each with the place of its key, and the files that other users may write."""
    found = [Problem(*text.split(": ", 1)) for text in other_writers(config, os.geteuid())]
    for key, text in failures(config, running):
        place = config.provenance[key]
        found.append(
            Problem(
                str(config.path) if place == "default" else place,
                text if text.startswith(key) else f"{key}: {text}",
            )
        )
    return in_order(found, config.path)


def failures(config: Config, running: Mapping[str, object]) -> list[Failed]:
    """The problems that a start with this configuration would fail for. ``running``: the bookie's running
    configuration by key, if there is one: an address in use is not tried."""
    values = config.values()
    in_use = {key for key in ("listen", "http_listen") if running.get(key) == values[key]}
    found: list[Failed] = []
    for key, attempt in _attempts(config):
        if key in in_use:
            continue
        try:
            attempt()
        except ConfigError as error:
            found += [Failed(_key_of(config, text, key), text) for text in error.problems]
        except BkboxError as error:
            found.append(Failed(_key_of(config, str(error), key), str(error)))
    return list({each.text: each for each in found}.values())


def _attempts(config: Config) -> Iterator[tuple[str, Callable[[], object]]]:
    yield from access_policy.files_of(config).values()
    yield "tls", lambda: access_policy.order_of(config)
    if config.http_listen:
        yield "http_token_file", lambda: tcp_access_of(config)
        yield "http_listen", lambda: asyncio.run(_listen_for_http(config))
    yield "listen", lambda: startup_resources.bind(config).close()
    for folder in config.disks:
        yield "disks", partial(_require_folder, folder)
    for key, place in (("journal", config.journal), ("run_dir", config.run_dir)):
        if place is not None:
            yield key, partial(_require_folder, place)
    if not config.rack_map.startswith(ZNODE_PREFIX):
        script = None if config.topology_script is None else str(config.topology_script)
        key = "rack_map" if script is None else "topology_script"
        yield key, lambda: topology_of_files(script, config.rack_map or None)
    yield (
        "peers_tls",
        lambda: ClientHandshake(ClientOptions(**repair_config.client_options(config))),
    )
    yield "metadata", lambda: asyncio.run(_open_metadata(config.metadata))


def _require_folder(path: Path) -> None:
    """Raises BootError if the path is no usable folder."""
    if not path.is_dir():
        what = "is not a folder" if os.path.lexists(path) else "is not there"
        raise BootError(f"{path} {what}: mount it, make it, or correct the path")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise BootError(
            f"{path} cannot be written to by the user with id {os.geteuid()}: run this as the user that runs the "
            "bookie, or change the owner of the folder"
        )


async def _listen_for_http(config: Config) -> None:
    def access() -> TcpAccess:
        raise AssertionError("no connection is accepted")

    host, port = address_of(config.http_listen)
    server = await start_tcp(host, port, tuple, access)
    await server.close()


async def _open_metadata(uri: str) -> None:
    """Opens an embedded store; for a cluster, reads the credential files that it needs."""
    parsed = parse(uri)
    if isinstance(parsed, SqliteUri):
        async with await connect(uri):
            return
    if isinstance(parsed, ZooKeeperUri):
        from bkbox.metadata.zookeeper.kazoo_patches import shown  # kazoo takes a while to import

        shown(parsed.access)
    else:
        check_oxia()
        from bkbox.metadata.oxia.connection import credentials_of

        credentials_of(parsed)


def _key_of(config: Config, text: str, tried: str) -> str:
    """The configuration key whose file the text names; otherwise the key that was tried."""
    for name, item in SCHEMA.items():
        value = getattr(config, name)
        if isinstance(kind_of(item), File) and value is not None and str(value) in text:
            return name
    return tried
