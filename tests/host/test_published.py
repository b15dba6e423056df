"""What a bookie says of itself in its registration, and what the others make of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bkbox import __version__
from bkbox.api.admin.cluster_members import DOWN, READ_ONLY, WRITABLE, Member, members_of
from bkbox.base.ids import BookieId
from bkbox.client.placement.topology import NoTopology
from bkbox.config import load as configuration
from bkbox.metadata import connect, init_cluster
from bkbox.supervisor.service.service_info import service_info_of
from bkbox.wire.metadata import service_info
from bkbox.wire.metadata.cookie import cookie_of, encode
from bkbox.wire.metadata.service_info import (
    ADMIN_ENDPOINT_ID,
    HostPort,
    ServiceInfo,
    rpc_service_info,
)

VERSION = f"bkbox {__version__}"


def said(
    folder: Path, http_listen: str = "", *lines: str, listen: str = "10.0.0.5:3181"
) -> ServiceInfo:
    """By a bookie with this configuration."""
    file = folder / "bookie.toml"
    http = [f'http_listen = "{http_listen}"', 'http_token_file = "t"'] if http_listen else []
    file.write_text(
        "\n".join(
            [
                f'listen = "{listen}"\nmetadata = "sqlite:c.db"\ndisks = ["d"]',
                *http,
                *lines,
                "",
            ]
        )
    )
    return service_info_of(configuration.load(file, {}), listen, http_listen)


TLS = ('http_tls = "required"', 'tls_certificate_file = "c"', 'tls_key_file = "k"')


@pytest.mark.parametrize(
    ("http_listen", "lines", "admin"),
    [
        ("", (), None),
        ("127.0.0.1:8080", (), None),
        ("10.0.0.5:8080", TLS, "https://10.0.0.5:8080"),
        ("0.0.0.0:8080", TLS, "https://10.0.0.5:8080"),
        ("[fd00::1]:8080", ('http_tls = "off"',), "http://[fd00::1]:8080"),
    ],
)
def test_what_is_published(
    tmp_path: Path, http_listen: str, lines: tuple[str, ...], admin: str | None
) -> None:
    """Through the bytes of the registration; clients look for the endpoint that they know, and find it."""
    uri = f"sqlite:{tmp_path}/cluster.db"
    me, ro, java, gone, down = map(
        BookieId, ("10.0.0.5:3181", "ro:1", "java:1", "gone:1", "down:1")
    )
    cookie = encode(cookie_of(down, ["/j"], ["/data/a", "/data/b"]))
    info = said(tmp_path, http_listen, *lines)
    assert service_info.decode(me, service_info.encode(info)) == info
    assert info.rpc == HostPort("10.0.0.5", 3181)

    async def story() -> list[Member]:
        await init_cluster(uri)
        async with await connect(uri) as store:
            await store.register(me, info, read_only=False)
            await store.register(ro, info, read_only=True)
            await store.register(java, rpc_service_info("java", 1), read_only=False)
            await store.write_cookie(gone, b"whatever", None)
            await store.write_cookie(down, cookie, None)
            return await members_of(store, NoTopology())

    found = {each.id: each for each in asyncio.run(story())}
    rack, socket = "/default-rack", str(tmp_path / "d" / "admin.sock")
    assert found == {
        me: Member(me, "10.0.0.5:3181", WRITABLE, rack, VERSION, admin, socket),
        ro: Member(ro, "10.0.0.5:3181", READ_ONLY, rack, VERSION, admin, socket),
        java: Member(java, "java:1", WRITABLE, rack, None, None),
        gone: Member(gone, None, DOWN),
        down: Member(down, None, DOWN, socket="/data/a/admin.sock"),
    }


def test_where_clients_are_on_this_host_too_its_admin_api_is_published(tmp_path: Path) -> None:
    info = said(tmp_path, "127.0.0.1:8080", listen="127.0.0.1:3181")
    (admin,) = (each for each in info.endpoints if each.id == ADMIN_ENDPOINT_ID)
    assert (admin.host, admin.port, admin.protocol) == ("127.0.0.1", 8080, "http")
