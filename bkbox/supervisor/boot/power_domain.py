"""Detects bookies that all lose power together: then ``ack_after = write`` can lose acknowledged entries on all of
them.

Under ``write`` a lost host loses what it had not synced, and repair copies that back from bookies on other hosts. If
every bookie is on one host, or in one rack, one power cut takes all copies.
"""

from __future__ import annotations

from collections.abc import Mapping

from bkbox.base.ids import BookieId
from bkbox.config import metadata_uri
from bkbox.config.schema import Config
from bkbox.metadata import connect
from bkbox.metadata.base import MetadataStore
from bkbox.wire.metadata.service_info import split_bookie_id

_MEANS = (
    "A power cut there takes all copies of what was not synced yet: ledgers written in the last seconds stay in limbo, "
    "and cannot be closed before an operator ends them and accepts the loss"
)


def of_store(config: Config) -> str:
    """The finding from the configuration alone; empty without one."""
    if config.ack_after != "write":
        return ""
    if isinstance(metadata_uri.parse(config.metadata), metadata_uri.SqliteUri):
        return f"ack_after = write with SQLite as the metadata store: all bookies are on this one host. {_MEANS}"
    return ""


async def check(config: Config, wait_s: float) -> str:
    """Why one power cut takes every bookie in the metadata store, and what that means. Empty if it does not, or if
    nothing is acknowledged before it is synced. Raises MetadataError, OperatorError, ConfigError."""
    known = of_store(config)
    if known or config.ack_after != "write":
        return known
    # Loaded here: it takes the whole client, and one host needs none.
    from bkbox.client.options import ClientOptions
    from bkbox.client.placement.topology import topology_of

    async with await connect(config.metadata, min(wait_s, config.metadata_wait_s)) as store:
        hosts = await _hosts(config, store)
        script = None if config.topology_script is None else str(config.topology_script)
        options = ClientOptions(topology_script=script, rack_map=config.rack_map or None)
        racks = await topology_of(options, store).racks(hosts)
    return assess(hosts, racks)


def assess(hosts: Mapping[BookieId, str], racks: Mapping[BookieId, str]) -> str:
    """The same, from the hosts and racks of bookies (DEFAULT_RACK: not known)."""
    from bkbox.client.placement.topology import DEFAULT_RACK

    if len(hosts) == 1:
        (host,) = hosts.values()
        return (
            f"ack_after = write, and no other bookie is known than the one on host {host}. {_MEANS}"
        )
    if len(set(hosts.values())) == 1:
        host = next(iter(hosts.values()))
        return f"ack_after = write, and all {len(hosts)} bookies are on host {host}. {_MEANS}"
    if len(set(racks.values())) == 1 and DEFAULT_RACK not in racks.values():
        rack = next(iter(racks.values()))
        return f"ack_after = write, and all {len(hosts)} bookies are in rack {rack}. {_MEANS}"
    return ""


def what_to_do(config: Config) -> str:
    """The change of the configuration that removes the risk."""
    return f'set ack_after = "sync" in {config.path} and restart the bookie'


async def _hosts(config: Config, store: MetadataStore) -> dict[BookieId, str]:
    """The host of each bookie that has a cookie or is registered. An unknown host is represented by the bookie's id."""
    registered = await store.bookies()
    hosts = {}
    for bookie in {*await store.cookies(), *registered}:
        found = registered.get(bookie)
        address = (found.service_info.rpc if found else None) or split_bookie_id(bookie)
        hosts[bookie] = bookie if address is None else address.host
    hosts[BookieId(config.bookie_id)] = config.advertised_host
    return hosts
