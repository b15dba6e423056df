"""Abuse of each kind beside a client that works: what it notices, and what the front-end needs meanwhile.

``python -m tests.security.abuse [KIND…] --seconds 60 [--report]`` runs the kinds (kinds.py), by default all, one after
the other, each in a process of its own, in turns of ten seconds with the client alone before each, and prints a line
for each: medians over the turns. There are three bookies: one lets everybody in, one offers TLS and has its admin API
on a port, and at the last one the client has logged in. With ``--report`` the rows of these kinds in docs/security.md
are those of this run. It fails where the client keeps less than 0.8 of its rate, waits more than three times as long
(p99) or loses an entry, and where the front-end keeps descriptors or memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.bench.peers.report import machine, replace_between
from tests.harness.cluster import create_ledgers, ledger_of
from tests.harness.processes import BookieProcess, free_port
from tests.harness.raw3 import EOK
from tests.harness.waiting import wait_for
from tests.security.certificates import Authority, secret_file
from tests.security.idle import lost, work
from tests.security.kinds import AT, FOR_COMPARISON, KINDS, PORTS, SECRET, USER, Place
from tests.security.secured import Visitor

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
RATE_LEAST = 0.8
P99_MOST = 3.0
ALONE_S, BEGIN_S, TURN_S = 5.0, 1.5, 10.0
"""The machine's own rate may change by half within minutes, so the client is by itself before each turn of the abuse,
which has some time to begin."""
SLACK_BYTES = 300 << 20
"""Beside what it is at rest: what is held for clients, at most, and slots on their way."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the client kept of its rate, by how much its p99 grew, what the front-end took meanwhile, and acknowledged
    entries that could not be read after it."""

    kind: str
    rate: float
    p99: float
    grown_bytes: int
    lost: int

    @property
    def is_well(self) -> bool:
        return (
            self.rate >= RATE_LEAST
            and self.p99 <= P99_MOST
            and not self.lost
            and self.grown_bytes < SLACK_BYTES
        )

    @property
    def row(self) -> str:
        verdict = "" if self.is_well else "**too much**"
        if self.kind == FOR_COMPARISON:
            verdict = "for comparison"
        grown = self.grown_bytes >> 20
        return f"| {self.kind} | {self.rate:.2f} | {self.p99:.2f} | {grown} MiB | {self.lost} | {verdict} |"


HEAD = """\
| what is done | rate kept (≥ 0.8) | p99 times (≤ 3) | memory more (≤ 300 MiB) | entries lost | |
|---|--:|--:|--:|--:|---|"""


class Scene:
    """The bookies, and the next entry that the client writes to each."""

    def __init__(self, folder: Path) -> None:
        pair = Authority(folder / "authority").issue("bookie")
        users = secret_file(folder / "users", f"{USER}:{SECRET}\n")
        http = free_port()
        offers_tls = {
            "tls": "offered",
            "tls_certificate_file": pair.certificate,
            "tls_key_file": pair.key,
            "http_tls": "required",
            "http_listen": f"127.0.0.1:{http}",
            "http_token_file": secret_file(folder / "token", "t" * 32),
        }
        guarded = {"auth": "token;sasl", "auth_users_file": users}
        settings: dict[str, dict[str, object]] = {"port": {}, "tls": offers_tls, "guarded": guarded}
        self.bookies = {
            name: BookieProcess(folder / name, f"sqlite:{folder}/metadata.db").init(
                disks=1, frontends=1, **given
            )
            for name, given in settings.items()
        }
        ports = {name: bookie.port for name, bookie in self.bookies.items()}
        self.place = Place(**ports, http=http)
        self._next = dict.fromkeys(self.bookies, 0)

    def __enter__(self) -> Scene:
        for bookie in self.bookies.values():
            bookie.start()
        # Or else what the client writes were collected, as a ledger that nobody knows.
        names = [bookie.bookie_id for bookie in self.bookies.values()]
        create_ledgers(self.bookies["port"].metadata, [ledger_of(1, names)])
        return self

    def __exit__(self, *_: object) -> None:
        for bookie in self.bookies.values():
            bookie.stop()

    def run(self, kind: str, seconds: float) -> Outcome:
        name = AT.get(kind, "port")
        bookie = self.bookies[name]
        [frontend] = bookie.children("frontend")
        rates, tails, grown = [], [], 0
        first = entry = self._next[name]
        with Visitor(bookie.port) as good:
            if name == "guarded" and good.log_in_with_token(USER, SECRET) != EOK:
                raise AssertionError("the client is not let in")
            _, entry = work(good, 0.5, entry)  # it has been let in
            descriptors, memory = frontend.num_fds(), frontend.memory_info().rss
            for _ in range(max(1, round(seconds / TURN_S))):
                alone, entry = work(good, ALONE_S, entry)
                abuser = self._begin(kind)
                _, entry = work(good, BEGIN_S, entry)
                during, entry = work(good, TURN_S, entry)
                grown = max(grown, frontend.memory_info().rss - memory)
                abuser.terminate()
                abuser.wait()
                wait_for(lambda: frontend.num_fds() <= descriptors, f"descriptors after {kind}", 30)
                rates.append(during.rate / alone.rate)
                tails.append(during.p99_s / alone.p99_s)
            missing = lost(good, range(first, entry))
        self._next[name] = entry
        return Outcome(kind, median(rates), median(tails), grown, len(missing))

    def _begin(self, kind: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.security.kinds", kind]
        for name in PORTS:
            command += [f"--{name}", str(getattr(self.place, name))]
        return subprocess.Popen([*command, "--seconds", str(BEGIN_S + TURN_S)])


def report(rows: dict[str, str], seconds: float) -> None:
    """Rows of kinds that were not run stay as they are."""
    page = PAGE.read_text()
    before = page.partition("<!-- abuse: begin -->")[2].partition("<!-- abuse: end -->")[0]
    for line in before.splitlines():
        kind = line.strip("| ").partition(" | ")[0]
        if kind in KINDS:
            rows.setdefault(kind, line)
    table = "\n".join(rows[kind] for kind in KINDS if kind in rows)
    text = f"{seconds:.0f} s each. {machine()}.\n\n{HEAD}\n{table}"
    PAGE.write_text(replace_between(page, "abuse", text))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--dir", type=Path, help="where the bookies write: /dev/shm where a disk is busy"
    )
    parser.add_argument("--report", action="store_true", help="write the table of docs/security.md")
    asked = parser.parse_args()
    outcomes = []
    with tempfile.TemporaryDirectory(dir=asked.dir) as folder, Scene(Path(folder)) as scene:
        print(HEAD)
        for kind in asked.kinds or KINDS:
            found = scene.run(kind, asked.seconds)
            print(found.row, flush=True)
            outcomes.append(found)
    if asked.report:
        report({each.kind: each.row for each in outcomes}, asked.seconds)
    return 0 if all(each.is_well or each.kind == FOR_COMPARISON for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
