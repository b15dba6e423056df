"""ZooKeeper with what it asks of whoever connects: a user, and TLS."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from bkbox.config.metadata_uri import WrongUriError, ZooKeeperAccess, ZooKeeperUri, parse
from bkbox.errors import ConfigError, MetadataError, MetadataUnavailableError
from bkbox.metadata import connect, init_cluster
from tests.harness.cluster import ledger_of
from tests.harness.zookeeper import ZooKeeper, zookeeper
from tests.security.certificates import Authority, Pair, secret_file

__all__ = ["zookeeper"]


def test_uris() -> None:
    text = "?secret_file=/a/b&tls_ca_file=/c&tls_certificate_file=/d&tls_key_file=/e"
    found = parse(f"zk://h:1/ledgers{text}")
    assert isinstance(found, ZooKeeperUri)
    assert (found.hosts, found.root) == (("h:1",), "/ledgers")
    paths = (Path("/a/b"), Path("/c"), Path("/d"), Path("/e"))
    assert found.access == ZooKeeperAccess(*paths)
    assert str(found) == f"zk://h:1/ledgers{text}"
    pulsar = parse(f"metadata-store:zk:h:1,[::1]:2/x{text}")
    assert isinstance(pulsar, ZooKeeperUri)
    assert (pulsar.hosts, pulsar.root) == (("h:1", "[::1]:2"), "/x/ledgers")
    assert pulsar.access == found.access
    assert str(pulsar) == f"metadata-store:zk:h:1,[::1]:2/x{text}"
    assert str(parse("zk+flat://h:1/ledgers/")) == "zk+flat://h:1/ledgers"
    assert str(parse("metadata-store:h:1/")) == "metadata-store:zk:h:1"
    for wrong in (
        "?",
        "?secret_file",
        "?secret_file=relative",
        "?secret_file=/a&secret_file=/b",
        "?password=x",
        "?tls_key_file=/a",
        "?tls_key_file=/a&tls_certificate_file=/b",
    ):
        with pytest.raises(WrongUriError):
            parse(f"zk://h:1/ledgers{wrong}")


def test_what_is_created_is_of_one_user(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    root = zookeeper.new_root()
    plain = zookeeper.uri(root)
    secret = secret_file(tmp_path / "secret", "bookkeeper:a-long-password")
    other = secret_file(tmp_path / "other", "somebody:another-password")
    uri = f"{plain}?secret_file={secret}"

    async def story() -> None:
        await init_cluster(uri)
        async with await connect(uri) as store:
            await store.create_ledger(ledger_of(5, ["b:1"]))
            assert (await store.read_ledger(5)).value.ledger_id == 5
        for wrong in (plain, f"{plain}?secret_file={other}"):
            with pytest.raises(MetadataError, match="NoAuthError"):
                async with await connect(wrong, 5.0) as store:
                    await store.read_ledger(5)

    asyncio.run(story())
    stranger = KazooClient(f"127.0.0.1:{zookeeper.port}")
    stranger.start()
    try:
        with pytest.raises(NoAuthError):
            stranger.get(f"{root}/INSTANCEID")
        with pytest.raises(NoAuthError):
            stranger.create(f"{root}/available/stranger")
    finally:
        stranger.stop()
        stranger.close()


def test_a_secret_that_others_may_read(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    secret = secret_file(tmp_path / "secret", "bookkeeper:a-long-password")
    secret.chmod(0o644)
    with pytest.raises(ConfigError, match="may read it"):
        asyncio.run(init_cluster(f"{zookeeper.uri(zookeeper.new_root())}?secret_file={secret}"))


class TlsFront:
    """TLS before ZooKeeper, which asks for a certificate."""

    def __init__(self, authority: Authority, pair: Pair, port: int) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
        self._context.load_cert_chain(pair.certificate, pair.key)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, outer]

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65_536):
                sink.write(data)
            sink.close()

        await asyncio.gather(pump(reader, outer), pump(inner, writer), return_exceptions=True)

    async def close(self) -> None:
        self._server.close()
        for writer in self._writers:
            # On Python 3.11.2 a transport that was closed already cannot be aborted.
            if not writer.is_closing():
                writer.transport.abort()
        await asyncio.sleep(0.1)


@pytest.mark.filterwarnings("ignore:ssl.OP_NO_SSL:DeprecationWarning")
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # kazoo leaves sockets that fail
def test_through_tls(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    mine = authority.issue("client")

    async def story() -> None:
        front = TlsFront(authority, authority.issue("server"), zookeeper.port)
        listening = await front.listen()
        base = f"zk://127.0.0.1:{listening}{zookeeper.new_root()}"
        shown = f"&tls_certificate_file={mine.certificate}&tls_key_file={mine.key}"
        uri = f"{base}?tls_ca_file={authority.file}{shown}"
        try:
            await init_cluster(uri)
            async with await connect(uri) as store:
                await store.create_ledger(ledger_of(5, ["b:1"]))
                assert (await store.read_ledger(5)).value.ledger_id == 5
            for wrong in (
                base,
                f"{base}?tls_ca_file={foreign.file}{shown}",
                f"{base}?tls_ca_file={authority.file}",
            ):
                with pytest.raises(MetadataUnavailableError):
                    await connect(wrong, 3.0)
        finally:
            await front.close()

    asyncio.run(story())
