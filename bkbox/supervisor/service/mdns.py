"""Announces the bookie on its network by mDNS service discovery (RFC 6762 and 6763), for first contact.

It is a convenience for people and their screens. Membership of a cluster is decided by the metadata store alone and
never by an announcement. So no failure here reaches the bookie, and only one interface is used, the one with the
advertised address. Off unless ``announce = true``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import socket
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Protocol

import bkbox
from bkbox.api.admin.cluster_members import url_of
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.base.backoff import Backoff
from bkbox.base.text import error_text
from bkbox.config.values import split_address
from bkbox.supervisor.service.service_info import admin_endpoint

if TYPE_CHECKING:
    from zeroconf import ServiceInfo

    from bkbox.config.schema import Config

    class AnnouncedBookie(Protocol):
        """The part of the supervisor that an announcement uses."""

        config: Config
        listen: str
        http_listen: str
        instance_id: str


log = logging.getLogger(__name__)

SERVICE = "_bkbox._tcp.local."

_AGAIN_S, _AGAIN_MAX_S = 1.0, 60.0
"""The first back-off after a failure, and the bound up to which it doubles."""

_GOODBYE_S = 2.0
_LABEL_BYTES_MAX = 63
_DIGEST_DIGITS = 6


@contextlib.asynccontextmanager
async def announced(bookie: AnnouncedBookie) -> AsyncIterator[None]:
    """Announce the bookie inside the context if its configuration wants that, and say goodbye at the end."""
    if not bookie.config.announce:
        yield
        return
    task = asyncio.ensure_future(_announce(bookie))
    task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=_GOODBYE_S)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("the bookie is not announced: %s", error_text(error))


async def _announce(bookie: AnnouncedBookie) -> None:
    try:
        from zeroconf import Error
        from zeroconf.asyncio import AsyncZeroconf
    except ImportError:
        log.warning(
            "announce = true needs the library zeroconf, which is not there: "
            "install it with pip install 'bkbox[discovery]'"
        )
        return
    backoff = Backoff(_AGAIN_S, _AGAIN_MAX_S)
    while True:
        try:
            address = await _advertised_address(bookie)
            zeroconf = AsyncZeroconf(interfaces=[address])
            try:
                info = _service(bookie, address)
                await (await zeroconf.async_register_service(info, allow_name_change=True))
                log.info("announced as %s on %s", info.name, address)
                backoff.reset()
                await asyncio.Event().wait()
            finally:
                await zeroconf.async_close()
        except (OSError, Error) as error:  # the interface may come up later
            reason, pause_s = error_text(error), backoff.next_s()
            log.warning("the bookie is not announced, next try in %.0f s: %s", pause_s, reason)
            await asyncio.sleep(pause_s)


async def _advertised_address(bookie: AnnouncedBookie) -> str:
    """The address that the advertised name resolves to. Raises OSError where it does not resolve."""
    host = bookie.config.advertised_host
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return str(found[0][4][0])


def _service(bookie: AnnouncedBookie, address: str) -> ServiceInfo:
    from zeroconf import ServiceInfo

    config = bookie.config
    listen = split_address(bookie.listen)
    assert listen is not None
    label = service_label(config.bookie_id)
    admin = admin_endpoint(config, bookie.http_listen, address)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ServiceInfo(
        SERVICE,
        f"{label}.{SERVICE}",
        addresses=[socket.inet_pton(family, address)],
        port=listen[1],
        properties={
            "id": config.bookie_id,
            "instance": bookie.instance_id,
            "admin": f"unix:{admin_socket_path(config)}" if admin is None else url_of(admin),
            "version": bkbox.__version__,
        },
        server=f"{label}.local.",
    )


def service_label(bookie_id: str) -> str:
    """A DNS label made from a bookie id, which may have dots and be longer. The text record has the id itself.

    An id that is no valid label gets a digest appended: another id that differs only in such characters may be
    announced at the same moment.
    """
    label = re.sub(r"[^a-z0-9-]", "-", bookie_id.lower()).strip("-")
    if label == bookie_id and len(label) <= _LABEL_BYTES_MAX:
        return label
    digest = hashlib.sha256(bookie_id.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{label[: _LABEL_BYTES_MAX - _DIGEST_DIGITS - 1].strip('-') or 'bookie'}-{digest}"


def properties_of(raw: Mapping[bytes, bytes | None]) -> dict[str, str]:
    """Decode a text record. It comes from the network and may contain anything, so only valid text is returned."""
    return {
        key.decode("ascii", "replace"): "".join(
            character if character.isprintable() else "?"
            for character in (value or b"").decode("utf-8", "replace")
        )
        for key, value in raw.items()
    }
