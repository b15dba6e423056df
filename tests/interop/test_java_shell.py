"""Apache's command line says of a bkbox cluster what it says of one of Apache's own bookies.

The commands run in both clusters in the same order, and both clusters have the same history. What cannot be the
same, and nothing else, is replaced by a word before the comparison: ports, folders, the id of the
cluster, and numbers of free bytes.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.interop.clients import pattern
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import InteropCluster
from tests.interop.javaclient import JavaClient

LEDGER = 7000
"""An id of our own; the ledger after it is open."""
BOOKIE = "BOOKIE"
"""Stands for the id of one bookie."""

COMMANDS = [
    ["whatisinstanceid"],
    ["listbookies", "-rw"],
    ["listbookies", "-ro"],
    ["listbookies", "-a"],
    ["cookie_get", BOOKIE],
    ["endpointinfo", "-b", BOOKIE],
    ["bookieinfo"],
    ["clusterinfo"],
    ["listledgers"],
    ["listledgers", "-m"],
    ["ledgermetadata", "-l", str(LEDGER)],
    ["ledgermetadata", "-l", str(LEDGER + 1)],
    ["readledger", "-l", str(LEDGER), "-fe", "2", "-le", "4", "-m"],
    ["readledger", "-l", str(LEDGER), "-fe", "0", "-le", "5", "-b", BOOKIE],
    ["queryautorecoverystatus"],
    ["autorecovery", "-d"],
    ["queryautorecoverystatus"],
    ["autorecovery", "-e"],
    ["lostbookierecoverydelay", "-g"],
    ["whoisauditor"],
    ["listunderreplicated"],
    ["simpletest", "-e", "3", "-w", "3", "-a", "2", "-n", "20"],
    ["listledgers"],
    ["deleteledger", "-l", str(LEDGER), "-f"],
    ["ledgermetadata", "-l", str(LEDGER)],
]

Output = dict[str, tuple[int, list[str]]]
"""Exit status and lines, by command."""


@pytest.fixture(scope="module")
def outputs(make_cluster: MakeCluster) -> tuple[Output, Output]:
    """Of one of Apache's clusters, and of one of bkbox's."""
    clusters = [
        make_cluster("shell-java", java=3),
        make_cluster("shell-bkbox", bkbox=3, journal=True, ack_after="journal"),
    ]
    with ThreadPoolExecutor(2) as pool:
        java, bkbox = pool.map(filled_and_asked, clusters)
    return java, bkbox


def filled_and_asked(cluster: InteropCluster) -> Output:
    client = cluster.client("java-v3")
    assert isinstance(client, JavaClient)
    for ledger in (LEDGER, LEDGER + 1):
        writer = client.create(
            3, 2, 2, adv=True, ledger=ledger, password=b"pw", custom={"key": b"value"}
        )
        for entry in range(6):
            writer.write(entry, pattern(entry, 40))
        if ledger == LEDGER:
            writer.close()
    cluster.start_autorecovery()
    bookie = client.metadata(LEDGER).ensembles[0][0]
    done = cluster.shell(
        *([word.replace(BOOKIE, bookie) for word in command] for command in COMMANDS)
    )
    names = [f"{number} {' '.join(command)}" for number, command in enumerate(COMMANDS)]
    return {
        name: (status, normalised(cluster, text))
        for name, (status, text) in zip(names, done, strict=True)
    }


@pytest.mark.parametrize(
    "command", [f"{number} {' '.join(command)}" for number, command in enumerate(COMMANDS)]
)
def test_same_output(outputs: tuple[Output, Output], command: str) -> None:
    java, (status, lines) = (output[command] for output in outputs)
    ours = [line for line in lines if "bkbox" in line or "key=adminSocket" in line]
    told = 2 if "endpointinfo" in command else 0
    assert len(ours) == told, "a bookie of bkbox says its version, and where it answers operators"
    assert (status, [line for line in lines if line not in ours]) == java


def test_the_reference_says_something(outputs: tuple[Output, Output]) -> None:
    """Apache's own cluster answers each command with success, but the one after the ledger's end."""
    java, _ = outputs
    failed = [command for command, (status, _) in java.items() if status != 0]
    assert failed == [f"{len(COMMANDS) - 1} ledgermetadata -l {LEDGER}"]
    silent = [command.split()[1] for command, (_, lines) in java.items() if not lines]
    assert silent == ["deleteledger"]


def normalised(cluster: InteropCluster, text: str) -> list[str]:
    """The lines, in alphabetical order: several commands print sets."""
    assert cluster.autorecovery is not None
    for bookie in cluster.bookies:
        text = text.replace(str(bookie.port), "PORT")
        text = text.replace(str(bookie.root), "ROOT")
    text = text.replace(str(cluster.autorecovery.port), "AUDITOR").replace(cluster.uri, "URI")
    for found, word in (
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
        (r"ROOT/(ledgers|disk1)", "ROOT/DISK"),
        (r"\d+(\.\d+)?[KMGT]?B?\(\d+(\.\d+)?[KMGT]?B\)", "BYTES"),
        # Which process a bkbox bookie is: the one thing it says that Apache's does not.
        (r"^property \{key=bkbox\.process,.*\n", ""),
        (r"^Properties.*\n", ""),
        (r"^\s*(at .*|\.\.\. \d+ more)\n", ""),  # where in Java an error came from
    ):
        text = re.sub(found, word, text, flags=re.MULTILINE)
    return sorted(line.strip() for line in text.splitlines() if line.strip())
