"""``bkbox discover``: lists bookies that announce themselves on the network."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from bkbox.base.text import error_text, quoted
from bkbox.cli.lib.options import duration_s
from bkbox.cli.lib.output import Format, message, output_option, print_document, print_table, prints
from bkbox.config.values import join_address
from bkbox.errors import HostError
from bkbox.supervisor.service.mdns import SERVICE, properties_of

if TYPE_CHECKING:
    from zeroconf import ServiceStateChange, Zeroconf
    from zeroconf.asyncio import AsyncServiceInfo

_COLUMNS = ("id", "address", "version", "instance", "admin")


def _interface(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    if text is not None:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            raise click.BadParameter(
                f"{quoted(text)} is no address of this host: give one of `ip addr`"
            ) from None
    return text


@click.command()
@click.option(
    "--timeout",
    type=duration_s,
    default="3s",
    show_default=True,
    metavar="TIME",
    help="How long to listen.",
)
@click.option(
    "--interface",
    callback=_interface,
    metavar="ADDRESS",
    help="Listen on the interface with this address, instead of the default one.",
)
@output_option
@prints(list[dict[str, str]])
def discover(timeout: int, interface: str | None, output: Format) -> None:
    """List the bookies that announce themselves on this network.

    Those are the ones with "announce = true"; the bookies of a cluster are listed by "bkbox cluster
    list". Responses are not authenticated: nothing of them is proven.

    \b
    Example:
      bkbox discover
      bkbox discover --timeout 10s --interface 10.0.0.5 -o json
    """
    found = asyncio.run(found_here(timeout, interface))
    if output != "table":
        print_document(found, output)
    else:
        print_table(_COLUMNS, [[each[column] for column in _COLUMNS] for each in found])
    if not found:
        message("no bookie announces itself here: it needs announce = true in its configuration")


async def found_here(timeout_s: int, interface: str | None) -> list[dict[str, str]]:
    """The bookies that answered in that time, by id. Raises HostError."""
    try:
        from zeroconf import Error, InterfaceChoice
        from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf
    except ImportError:
        raise HostError(
            "the library zeroconf is not there: install it with pip install 'bkbox[discovery]'"
        ) from None
    names: set[str] = set()

    def changed(
        zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        if state_change.name == "Removed":
            names.discard(name)
        else:
            names.add(name)

    try:
        zeroconf = AsyncZeroconf(interfaces=[interface] if interface else InterfaceChoice.Default)
    except (OSError, Error) as error:
        raise HostError(
            f"cannot listen on {interface or 'the default interface'}: {error_text(error)}"
        ) from error
    try:
        AsyncServiceBrowser(zeroconf.zeroconf, [SERVICE], handlers=[changed])
        await asyncio.sleep(timeout_s)
        services = await asyncio.gather(*(_resolve(zeroconf.zeroconf, name) for name in names))
    finally:
        await zeroconf.async_close()
    return sorted((_row(info) for info in services if info is not None), key=lambda row: row["id"])


async def _resolve(zeroconf: Zeroconf, name: str) -> AsyncServiceInfo | None:
    from zeroconf.asyncio import AsyncServiceInfo

    info = AsyncServiceInfo(SERVICE, name)
    return info if await info.async_request(zeroconf, 1000) else None


def _row(info: AsyncServiceInfo) -> dict[str, str]:
    properties: Mapping[str, str] = properties_of(info.properties)
    addresses = info.parsed_addresses()
    address = join_address(addresses[0], info.port or 0) if addresses else ""
    return {
        "id": properties.get("id", ""),
        "address": address,
        "version": properties.get("version", ""),
        "instance": properties.get("instance", ""),
        "admin": properties.get("admin", ""),
    }
