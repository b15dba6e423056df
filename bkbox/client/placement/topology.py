"""The rack of each bookie: from a script, from a map, or the default.

A script is one that Java's clients use too (networkTopologyScriptFileName). It is called with one argument, the IP
address of a bookie (its host name if that has none), and prints the rack: a path such as ``/rack1`` or
``/region1/rack1``. Racks are compared as a whole. (Java calls it once without arguments, too, and uses no racks at
all if that fails.)

A map is the JSON document that Pulsar keeps in its znode ``/bookies`` and that ``pulsar-admin bookies
racks-placement`` prints: ``{group: {bookie id: {"rack": "/rack1", "hostname": "h1"}}}``. A bookie that is not in it
has the rack of another on the same host.

A bookie without a rack, for whatever reason, is in DEFAULT_RACK, and the reason is logged once. No result is older
than REFRESH_S, except racks from a script: they are kept. Source: ScriptBasedMapping.java, NetUtils.java,
NetworkTopology.java; Pulsar: BookieRackAffinityMapping.java.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from bkbox.base.ids import BookieId
from bkbox.base.text import error_text, quoted, reason_of
from bkbox.client.options import ClientOptions
from bkbox.config.metadata_uri import ZNODE_PREFIX
from bkbox.errors import ConfigError, EncodingError, MetadataError
from bkbox.metadata.base import MetadataStore
from bkbox.wire.metadata.service_info import split_bookie_id

log = logging.getLogger(__name__)

DEFAULT_RACK = "/default-rack"
"""Java: NetworkTopology.DEFAULT_RACK."""

SCRIPT_TIMEOUT_S = 5.0
REFRESH_S = 60.0
_SCRIPTS_AT_ONCE = 8

Warn = Callable[[str], None]


class Topology(Protocol):
    """Maps bookies to racks."""

    async def racks(self, hosts: Mapping[BookieId, str]) -> dict[BookieId, str]:
        """The rack of each of these bookies, given with their hosts. Raises nothing."""


class NoTopology:
    """A single rack for all bookies."""

    async def racks(self, hosts: Mapping[BookieId, str]) -> dict[BookieId, str]:
        return dict.fromkeys(hosts, DEFAULT_RACK)


def topology_of(options: ClientOptions, store: MetadataStore) -> Topology:
    """The topology that the options name. Raises ConfigError for an unusable file."""
    rack_map = options.rack_map
    if rack_map is not None and rack_map.startswith(ZNODE_PREFIX):
        path = rack_map.removeprefix(ZNODE_PREFIX)
        return MapTopology(rack_map, partial(store.read_znode, path))
    return topology_of_files(options.topology_script, rack_map)


def topology_of_files(script: str | None, rack_map: str | None) -> Topology:
    """The topology of a script, or of a file with a map. Raises ConfigError for an unusable file."""
    if script is not None:
        return ScriptTopology(script)
    return NoTopology() if rack_map is None else _map_of_file(rack_map)


class _LogOnce:
    """Logs each message once."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._logged: set[str] = set()

    def __call__(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            self._warn(text)


# ---- script -------------------------------------------------------------------------------------


class ScriptTopology:
    """Racks from a script, one call for each host. Raises ConfigError if that cannot be executed."""

    def __init__(self, script: str, warn: Warn = log.warning) -> None:
        self._script = Path(script).absolute()
        self._warn = _LogOnce(warn)
        self._racks: dict[str, str] = {}
        self._failed_at: dict[str, float] = {}
        self._asking = asyncio.Lock()
        if not (self._script.is_file() and os.access(self._script, os.X_OK)):
            raise ConfigError([f"topology script {script}: no such file, or it is not executable"])

    async def racks(self, hosts: Mapping[BookieId, str]) -> dict[BookieId, str]:
        now = asyncio.get_running_loop().time()
        async with self._asking:
            gate = asyncio.Semaphore(_SCRIPTS_AT_ONCE)
            unknown = {
                host
                for host in hosts.values()
                if host not in self._racks
                and now - self._failed_at.get(host, -REFRESH_S) >= REFRESH_S
            }
            await asyncio.gather(*(self._learn(host, gate) for host in sorted(unknown)))
        return {bookie: self._racks.get(host, DEFAULT_RACK) for bookie, host in hosts.items()}

    async def _learn(self, host: str, gate: asyncio.Semaphore) -> None:
        async with gate:
            try:
                async with asyncio.timeout(SCRIPT_TIMEOUT_S):
                    output = await self._run(await _address(host))
                self._racks[host] = _one_rack(output)
            except TimeoutError:
                self._failed(host, f"no answer within {SCRIPT_TIMEOUT_S:g} s")
            except (OSError, ValueError) as error:
                self._failed(host, error_text(error))

    def _failed(self, host: str, why: str) -> None:
        self._failed_at[host] = asyncio.get_running_loop().time()
        self._warn(
            f"topology script {self._script}: {why}; {host} is taken to be in {DEFAULT_RACK}"
        )

    async def _run(self, address: str) -> str:
        """The script's output. Raises OSError, ValueError if it fails."""
        process = await asyncio.create_subprocess_exec(
            self._script,
            address,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):  # it has ended just now
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode != 0:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2]
            why = f"exit code {process.returncode} for {address}"
            raise ValueError(f"{why}: {last}" if last else why)
        return output.decode(errors="replace")


def _one_rack(output: str) -> str:
    fields = output.split()
    if len(fields) != 1:
        raise ValueError(f"it printed {len(fields)} words for one address")
    rack = fields[0].removesuffix("/")
    if not rack.startswith("/"):
        raise ValueError(f"it printed {quoted(fields[0])}, and a rack is a path such as /rack1")
    return rack


async def _address(host: str) -> str:
    """The IP address as Java writes it, version 4 if there is one, or else the host name."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return host
    by_family = {family: address[0] for family, _, _, _, address in reversed(found)}
    if socket.AF_INET in by_family:
        return str(by_family[socket.AF_INET])
    address = ipaddress.IPv6Address(str(by_family[socket.AF_INET6]).partition("%")[0])
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))


# ---- map ----------------------------------------------------------------------------------------


class MapTopology:
    """Racks from a map, which ``read`` gives: the bytes, or an OSError or MetadataError. While that fails the last
    racks read are kept. ``name`` is for messages.
    """

    def __init__(
        self, name: str, read: Callable[[], Awaitable[bytes]], warn: Warn = log.warning
    ) -> None:
        self._name = name
        self._read = read
        self._warn = _LogOnce(warn)
        self._racks: dict[BookieId, str] = {}
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    async def racks(self, hosts: Mapping[BookieId, str]) -> dict[BookieId, str]:
        await self._refresh()
        of_host = {
            address.host: rack
            for bookie, rack in self._racks.items()
            if (address := split_bookie_id(bookie)) is not None
        }
        found = {}
        for bookie, host in hosts.items():
            rack = self._racks.get(bookie) or of_host.get(host)
            if rack is None:
                self._warn(f"rack map {self._name}: {bookie} has no rack; it is in {DEFAULT_RACK}")
            found[bookie] = rack or DEFAULT_RACK
        return found

    async def _refresh(self) -> None:
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._read_at is not None and now - self._read_at < REFRESH_S:
                return
            self._read_at = now
            try:
                self._racks = parse_rack_map(await self._read())
            except (OSError, MetadataError, EncodingError) as error:
                self._warn(
                    f"rack map {self._name}: {error_text(error)}; what was read before, if any, is kept"
                )


def _map_of_file(name: str) -> MapTopology:
    file = Path(name).absolute()

    async def read() -> bytes:
        return file.read_bytes()

    try:
        parse_rack_map(file.read_bytes())
    except (OSError, EncodingError) as error:
        raise ConfigError([f"rack map {name}: {reason_of(error)}"]) from None
    return MapTopology(name, read)


def parse_rack_map(data: bytes) -> dict[BookieId, str]:
    """The racks in a map, without bookies that have none (``/`` or nothing). Raises EncodingError."""
    try:
        groups = json.loads(data)
    except ValueError as error:
        raise EncodingError(f"no JSON: {error}") from None
    racks: dict[BookieId, str] = {}
    if not isinstance(groups, dict):
        raise EncodingError("a rack map is an object of groups")
    for group, bookies in groups.items():
        if not isinstance(bookies, dict):
            raise EncodingError(f"group {quoted(group)} is no object of bookies")
        for bookie, info in bookies.items():
            rack = info.get("rack") if isinstance(info, dict) else None
            if rack is not None and not isinstance(rack, str):
                raise EncodingError(f"the rack of {bookie} is no text")
            if rack and rack.strip().strip("/"):
                racks[BookieId(bookie)] = "/" + rack.strip().strip("/")
    return racks
