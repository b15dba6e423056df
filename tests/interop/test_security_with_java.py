"""Apache's client with SASL and TLS on bkbox's bookies, bkbox's client on Apache's bookie with the same, and what each
of them is refused."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.harness.java import java_command
from tests.harness.zookeeper import ZooKeeper
from tests.interop.bkboxclient import BkboxClient
from tests.interop.clients import Client, Refused
from tests.interop.interopcluster import InteropCluster
from tests.interop.javaclient import Driver, JavaClient
from tests.interop.javaparts import JavaBookie
from tests.security.certificates import Authority, Pair, secret_file

USER, PASSWORD = "bookkeeper", "sesame-opens-bookkeeper"
LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
COUNT = 50


class Keys:
    """Certificates, users, and Java's login configuration."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.bookie = self.authority.issue("bookie")
        self.client = self.authority.issue("someone", unit="0:broker;1:test")
        self.secret = secret_file(folder / "secret", PASSWORD)
        self.users = secret_file(folder / "users", f"{USER}:{PASSWORD}\n")
        self.login = folder / "jaas.conf"
        self.login.write_text(
            f'Bookie {{ {LOGIN_MODULE} required user_{USER}="{PASSWORD}"; }};\n'
            f'BookKeeper {{ {LOGIN_MODULE} required username="{USER}" password="{PASSWORD}"; }};\n'
        )
        self.wrong_login = folder / "wrong.conf"
        self.wrong_login.write_text(
            f'BookKeeper {{ {LOGIN_MODULE} required username="{USER}" password="not-the-password"; }};\n'
        )

    def java_tls(self, pair: Pair, *, mutual: bool = False) -> dict[str, str]:
        """Settings of Java's client and bookie; a key store that is not shown is needed all the same."""
        return {
            "tlsProvider": "JDK",
            "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
            "tlsKeyStoreType": "PEM",
            "tlsKeyStore": str(pair.key),
            "tlsCertificatePath": str(pair.certificate),
            "tlsTrustStoreType": "PEM",
            "tlsTrustStore": str(self.authority.file),
            "tlsClientAuthentication": str(mutual).lower(),
        }


CLIENT_SASL = {
    "clientAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLClientProviderFactory"
}
BOOKIE_SASL = {
    "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"
}


def with_login(login: Path) -> list[str]:
    return [f"-Djava.security.auth.login.config={login}", "-Dzookeeper.sasl.client=false"]


class LoggedInDriver(Driver):
    """A JVM that knows a user and a password."""

    def __init__(self, root: Path, name: str, login: Path) -> None:
        super().__init__(root, name)
        self._login = login

    def start(self) -> Driver:
        options = with_login(self._login)
        self.launch(
            java_command("bkbox.interop.Driver", heap_mb=256, options=options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self.listen()


class LoggedInBookie(JavaBookie):
    """The same for Apache's bookie."""

    login: Path

    def launch_bookie(self) -> None:
        main = "org.apache.bookkeeper.server.Main"
        options = with_login(self.login)
        self.launch(
            java_command(main, "--conf", str(self.configuration), heap_mb=160, options=options)
        )


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def logged_in(interop_root: Path, keys: Keys) -> Iterator[Driver]:
    driver = LoggedInDriver(interop_root, "logged-in", keys.login).start()
    yield driver
    driver.kill()


@pytest.fixture(scope="module")
def wrongly_logged_in(interop_root: Path, keys: Keys) -> Iterator[Driver]:
    driver = LoggedInDriver(interop_root, "wrongly", keys.wrong_login).start()
    yield driver
    driver.kill()


def use(client: Client) -> None:
    """Write, read, close, recover."""
    with ExitStack() as stack:
        stack.callback(client.close)
        writer = client.create(1, 1, 1)
        for number in range(COUNT):
            writer.append(b"%d" % number)
        writer.append(b"z" * 200_000)
        reader = client.open(writer.ledger)  # recovers it
        expected = [(n, b"%d" % n) for n in range(COUNT)] + [(COUNT, b"z" * 200_000)]
        assert reader.read(0, COUNT) == expected


def is_refused(make: Any) -> None:
    """Nothing can be written."""
    with ExitStack() as stack:
        client = make()
        stack.callback(client.close)
        with pytest.raises(Refused):
            client.create(1, 1, 1).append(b"x")


QUICK = {"addEntryTimeoutSec": 3, "readEntryTimeoutSec": 3}


# ---- Apache's client on bkbox's bookie ------------------------------------------------------------


@pytest.fixture(scope="module")
def secured(
    interop_root: Path, zookeeper: ZooKeeper, driver: Driver, keys: Keys
) -> Iterator[InteropCluster]:
    """One bookie of bkbox's that takes everybody who proves who they are, with TLS and without."""
    cluster = InteropCluster(interop_root, zookeeper, driver, "secured")
    try:
        yield cluster.start(
            bkbox=1,
            tls="offered",
            tls_certificate_file=keys.bookie.certificate,
            tls_key_file=keys.bookie.key,
            tls_ca_file=keys.authority.file,
            tls_client_certificates="asked",
            auth="sasl;certificate",
            auth_users_file=keys.users,
            roles=f"{USER}=write;broker=write",
            peers_tls="start",
        )
    finally:
        cluster.close()


@pytest.mark.parametrize("protocol", ["v2", "v3"])
@pytest.mark.parametrize("way", ["sasl", "sasl and tls", "certificate"])
def test_java_on_bkbox(
    secured: InteropCluster, logged_in: Driver, driver: Driver, keys: Keys, way: str, protocol: str
) -> None:
    settings: dict[str, str] = {}
    if "sasl" in way:
        settings |= CLIENT_SASL
    if way != "sasl":
        settings |= keys.java_tls(keys.client, mutual=way == "certificate")
    if (way, protocol) == ("sasl and tls", "v2"):
        pytest.skip("Java's client cannot do that with Java's bookie either")
    use(JavaClient(logged_in if "sasl" in way else driver, secured.uri, protocol, **settings))


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_java_without_a_proof_on_bkbox(
    secured: InteropCluster, driver: Driver, wrongly_logged_in: Driver, keys: Keys, protocol: str
) -> None:
    is_refused(lambda: JavaClient(driver, secured.uri, protocol, **QUICK))
    is_refused(lambda: JavaClient(wrongly_logged_in, secured.uri, protocol, **CLIENT_SASL, **QUICK))
    tls = keys.java_tls(keys.client)  # encrypted, and nobody in particular
    is_refused(lambda: JavaClient(driver, secured.uri, protocol, **tls, **QUICK))


# ---- bkbox's client on Apache's bookie -------------------------------------------------------------


@pytest.fixture(scope="module")
def javas(
    interop_root: Path, zookeeper: ZooKeeper, driver: Driver, keys: Keys
) -> Iterator[InteropCluster]:
    """One of Apache's bookies, with SASL and with TLS offered."""
    cluster = InteropCluster(interop_root, zookeeper, driver, "javas")
    try:
        ((status, text),) = cluster.shell(["initnewcluster"])
        assert status == 0, text
        settings = {**BOOKIE_SASL, **keys.java_tls(keys.bookie)}
        bookie = LoggedInBookie(cluster.root, cluster.uri, name="java0", **settings)
        bookie.login = keys.login
        cluster.bookies.append(bookie)
        bookie.start()
        yield cluster
    finally:
        cluster.close()


@pytest.mark.parametrize("protocol", ["v2", "v3"])
@pytest.mark.parametrize("tls", ["off", "start"])
def test_bkbox_on_java(javas: InteropCluster, keys: Keys, tls: str, protocol: str) -> None:
    use(
        BkboxClient(
            javas.uri,
            protocol,
            tls=tls,
            tls_ca_file=str(keys.authority.file),
            auth="sasl",
            auth_user=USER,
            auth_secret_file=str(keys.secret),
        )
    )


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_bkbox_without_a_proof_on_java(
    javas: InteropCluster, keys: Keys, tmp_path: Path, protocol: str
) -> None:
    options = {
        "connect_timeout_s": 3.0,
        "add_timeout_s": 3.0,
        "tls_ca_file": str(keys.authority.file),
    }
    is_refused(lambda: BkboxClient(javas.uri, protocol, **options))
    wrong = secret_file(tmp_path / "wrong", "not-the-password")
    sasl = {"auth": "sasl", "auth_user": USER, "auth_secret_file": str(wrong)}
    is_refused(lambda: BkboxClient(javas.uri, protocol, **options, **sasl))
