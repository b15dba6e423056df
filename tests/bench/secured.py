"""bkbox beside Apache's bookie where every connection has gone through SASL DIGEST-MD5 and START_TLS.

``python -m tests.bench.secured [--rounds 3] [--dir FOLDER] [--quick] [--no-report]`` (JDK 17, Maven): each load, once a
round, on each bookie in turn, with the same load generator, which comes in as Java's client does; whoever is not
measured is stopped. bkbox syncs, Java's bookie writes its journal; Java's TLS is OpenSSL's, its default and its
fastest. The table goes between the markers ``secured`` of docs/performance.md; beside TLS it has bkbox without, for
what that costs.
"""

from __future__ import annotations

import argparse
import random
import secrets
import select
import ssl
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

from bkbox.bench.bookie import Target
from bkbox.bench.load import Load, Measured, Shape, first_ledger, measured
from bkbox.bench.load_loop import ADD, ENDLESS, READ
from bkbox.bench.memory import PageCache
from bkbox.bench.server import temporary_folder
from bkbox.errors import BenchError
from bkbox.security import digest_md5
from tests.bench.peers import report
from tests.bench.peers.java import JavaBookie, ZooKeeper, command
from tests.bench.peers.systems import Bkbox, Java, System
from tests.bench.quiet import DisturbedError, QuietMachine
from tests.harness.cluster import create_ledgers, ledger_of
from tests.harness.java import CHECKOUT, missing_reason
from tests.harness.raw3 import AUTH, EOK, START_TLS
from tests.security.certificates import Authority, secret_file
from tests.security.secured import Visitor, auth_part, client_tls

USER, PASSWORD = "bookkeeper", "sesame-opens-bookkeeper"
LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"

SECONDS, WARMUP_S = 3.0, 1.0
READ_ENTRIES = 160_000
SILENCE_S = 30.0
AT_LEAST = 1.5

LOADS = {
    "adds, 1 KiB, window 256": (ADD, Shape(16, 4, 256, 1024)),
    "adds, 1 KiB, window 16": (ADD, Shape(16, 4, 16, 1024)),
    "hot reads, 1 KiB, window 64": (READ, Shape(16, 4, 64, 1024)),
}
CLEAR, OURS, THEIRS = "bkbox in the clear", "bkbox", "java"


class Keys:
    """Certificates, users, and Java's login configuration."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "authority")
        self.bookie = self.authority.issue("bookie")
        self.users = secret_file(folder / "users", f"{USER}:{PASSWORD}\n")
        self.login = folder / "jaas.conf"
        self.login.write_text(f'Bookie {{ {LOGIN_MODULE} required user_{USER}="{PASSWORD}"; }};\n')

    def of_bkbox(self) -> dict[str, object]:
        return {
            "tls": "required",
            "tls_certificate_file": self.bookie.certificate,
            "tls_key_file": self.bookie.key,
            "auth": "sasl",
            "auth_users_file": self.users,
            "peers_tls": "start",
        }

    def of_java(self) -> dict[str, str]:
        return {
            "tlsProvider": "OpenSSL",
            "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
            "tlsKeyStoreType": "PEM",
            "tlsKeyStore": str(self.bookie.key),
            "tlsCertificatePath": str(self.bookie.certificate),
            "tlsTrustStoreType": "PEM",
            "tlsTrustStore": str(self.authority.file),
            "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory",
        }


class Link:
    """A connection through TLS as the load generator takes sockets: it does not block, and knows only of bytes."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        visitor = Visitor(port)
        visitor.start_tls(context)
        _log_in(visitor)
        self._sock = cast(ssl.SSLSocket, visitor.sock)
        self._sock.setblocking(False)

    def fileno(self) -> int:
        return self._sock.fileno()

    def recv_into(self, room: memoryview) -> int:
        """All that is there: what lies decrypted in OpenSSL wakes nobody."""
        size = 0
        while size < len(room):
            try:
                got = self._sock.recv_into(room[size:])
            except ssl.SSLWantReadError:
                if size:
                    break
                select.select((self._sock,), (), (), SILENCE_S)  # the rest of a record
                continue
            if not got:
                break
            size += got
        return size

    def send(self, data: memoryview) -> int:
        sent = 0
        while sent < len(data):
            try:
                sent += self._sock.send(data[sent:])
            except ssl.SSLWantWriteError:
                break
        return sent

    def close(self) -> None:
        self._sock.close()


def _log_in(visitor: Visitor) -> None:
    applicant = digest_md5.Client(USER, PASSWORD, secrets.token_hex(16))
    payload: bytes | None = applicant.begin()
    while payload is not None:
        visitor.post(AUTH, auth_part(applicant.plugin, payload))
        answer = visitor.answer3()
        while answer.operation == START_TLS:  # Java's bookie regrets, and goes on
            answer = visitor.answer3()
        if answer.status != EOK:
            raise BenchError(f"not let in: {answer.status}")
        said = (answer.part or {}).get(2, b"")
        assert isinstance(said, bytes)
        payload = applicant.step(said)


class SecuredLoad(Load):
    def __init__(self, address: tuple[str, int], context: ssl.SSLContext) -> None:
        super().__init__(address, SILENCE_S)
        self._context = context

    def _connect(self) -> Link:  # type: ignore[override]
        link = Link(self._address[1], self._context)
        self._exit.callback(link.close)
        return link


def run(load: Callable[[], Load], kind: int, shape: Shape, ledger: int, s: float) -> Measured:
    """``ledger``: the first one. Raises BenchError also for answers with a wrong code."""
    entries = ENDLESS
    if kind == READ:
        entries = READ_ENTRIES // shape.ledgers
        with load() as writing:
            for stream in writing.add(ADD, shape, ledger):
                stream.end = entries * stream.ledgers
            writing.run()
    with load() as running:
        streams = running.add(kind, shape, ledger, entries)
        running.run(WARMUP_S)
        running.count()
        found = measured(streams, running.run(s))
        running.finish()
    if found.errors:
        raise BenchError(f"answers with a wrong code: {found.errors}")
    return found


class SecuredBkbox(Bkbox):
    def __init__(self, name: str, root: Path, rng: random.Random, keys: Keys) -> None:
        super().__init__(name, root, rng, "sync")
        self._settings |= {key: str(value) for key, value in keys.of_bkbox().items()}

    def create_ledgers(self, first: int, count: int) -> None:
        """In its metadata: where clients log in, a bookie takes no ledger that is not there."""
        bookie = "{}:{}".format(*self.target.address)
        ledgers = (ledger_of(ledger, (bookie,)) for ledger in range(first, first + count))
        create_ledgers(self._metadata, ledgers)


class SecuredJava(Java):
    def __init__(
        self, name: str, root: Path, rng: random.Random, zookeeper: ZooKeeper, keys: Keys
    ) -> None:
        super().__init__(name, root, rng, zookeeper, journal=True)
        self._keys = keys

    def make(self) -> None:
        self._bookie = _JavaBookie(self.root, self._zookeeper.new_cluster(), self._keys)

    def warm(self) -> None:
        context = client_tls(self._keys.authority)
        for kind in (ADD, READ):
            run(
                lambda: SecuredLoad(self.target.address, context),
                kind,
                Shape(16, 4, 64, 1024),
                first_ledger(self.rng),
                6.0,
            )


class _JavaBookie(JavaBookie):
    def __init__(self, folder: Path, uri: str, keys: Keys) -> None:
        super().__init__(folder, uri, journal=True, heap_mb=1024, direct_mb=2048)
        with self._configuration.open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in keys.of_java().items())
        self._login = keys.login

    def launch_bookie(self) -> None:
        options = (
            f"-Djava.security.auth.login.config={self._login}",
            "-Dzookeeper.sasl.client=false",
        )
        main = ("org.apache.bookkeeper.server.Main", "--conf", str(self._configuration))
        self.launch(command(options[0], options[1], *main, heap_mb=1024, direct_mb=2048))


def measure(
    systems: dict[str, System],
    keys: Keys,
    rounds: int,
    seconds: float,
    rng: random.Random,
    quiet: QuietMachine,
    page_cache: PageCache,
) -> dict[str, dict[str, list[Measured]]]:
    """By load and system, one of each round."""
    context = client_tls(keys.authority)
    found: dict[str, dict[str, list[Measured]]] = {
        load: {name: [] for name in systems} for load in LOADS
    }

    def one_round(number: int, load: str) -> dict[str, Measured]:
        kind, shape = LOADS[load]
        ones = {}
        for name in systems if number % 2 == 0 else reversed(systems):
            system, first = systems[name], first_ledger(rng)
            target: Target = system.ready()
            if isinstance(system, SecuredBkbox):
                system.create_ledgers(first, shape.ledgers)
            page_cache.fill()
            try:
                one = run(
                    lambda address=target.address, name=name: (  # type: ignore[misc]
                        Load(address, SILENCE_S) if name == CLEAR else SecuredLoad(address, context)
                    ),
                    kind,
                    shape,
                    first,
                    seconds,
                )
            finally:
                system.sleep()
            ones[name] = one
            print(f"round {number + 1}, {load}, {name}: {one.per_s:,.0f}/s", file=sys.stderr)
        return ones

    for number in range(rounds):
        for load in LOADS:
            ones = quiet.measure(f"round {number + 1}, {load}", partial(one_round, number, load))
            for name, one in ones.items():
                found[load][name].append(one)
    return found


def table(found: dict[str, dict[str, list[Measured]]]) -> str:
    rows = [
        "| load | bkbox | Java | ratio (least, most) | target | p99.9 ms | Java | bkbox in the clear | |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for load, of in found.items():
        ratios = [a.per_s / b.per_s for a, b in zip(of[OURS], of[THEIRS], strict=True)]
        median = statistics.median(ratios)
        per_s = {name: statistics.median(one.per_s for one in of[name]) for name in of}
        tail = {name: statistics.median(one.p999_us for one in of[name]) / 1000 for name in of}
        spread = f"{median:.2f} ({min(ratios):.2f}, {max(ratios):.2f})"
        rows.append(
            f"| {load} | {per_s[OURS]:,.0f} | {per_s[THEIRS]:,.0f} | {spread} | ≥ {AT_LEAST} "
            f"| {tail[OURS]:,.2f} | {tail[THEIRS]:,.2f} | {per_s[CLEAR]:,.0f} "
            f"| {'reached' if median >= AT_LEAST else '**missed: ratio**'} |"
        )
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a second for each load")
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="where the bookies write")
    parser.add_argument("--no-report", action="store_true", help="print the table, write nothing")
    given = parser.parse_args()
    reason = missing_reason()
    if reason is not None:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    rng = random.Random()
    with temporary_folder(given.dir) as root, PageCache(given.dir) as page_cache:
        keys = Keys(root / "keys")
        zookeeper = ZooKeeper(root / "zookeeper").start()
        systems: dict[str, System] = {
            OURS: SecuredBkbox("secured", root, rng, keys),
            THEIRS: SecuredJava("java", root, rng, zookeeper, keys),
            CLEAR: Bkbox("clear", root, rng, "sync"),
        }
        try:
            seconds = 1.0 if given.quick else SECONDS
            quiet = QuietMachine(strict=not given.no_report)
            found = measure(systems, keys, given.rounds, seconds, rng, quiet, page_cache)
        except DisturbedError as error:
            print(f"error: {error}: no report is written", file=sys.stderr)
            return 1
        finally:
            for system in systems.values():
                system.stop()
            zookeeper.kill()
    text = f"Medians of {given.rounds} rounds. {report.machine()}.\n\n{table(found)}"
    print(text)
    if not given.no_report:
        page = CHECKOUT / "docs" / "performance.md"
        page.write_text(report.replace_between(page.read_text(), "secured", text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
