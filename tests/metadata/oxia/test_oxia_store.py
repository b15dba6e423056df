"""What the store leaves in Oxia, key by key, as Pulsar's driver does; and how it gets along with faults.

The servers are a stand-in (tests/harness/oxia_server.py): these tests show what the store does when servers behave as
Oxia's source says. They do not show that real ones do. Where OXIA_SERVER names a real one, the contract of every
store runs against it, too (tests/metadata/conftest.py).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from bkbox.base.ids import LedgerId
from bkbox.errors import (
    ConfigError,
    MetadataError,
    MetadataUnavailableError,
    OperatorError,
)
from bkbox.metadata import connect, init_cluster
from bkbox.metadata.tree.registration import PROCESS_PROPERTY
from bkbox.wire.metadata.service_info import decode
from tests.harness.oxia import Oxia
from tests.metadata.metadata_peer import ledger_of
from tests.metadata.oxia.stores import BOOKIE, INFO, ONE, run, store_in

MARK = "/ledgers/underreplication/ledgers/0000/0000/0000/2710/urL0000010000"


# ---- records ------------------------------------------------------------------------------------


def test_a_cluster_as_pulsars_driver_leaves_it(oxia: Oxia) -> None:
    namespace = oxia.new_namespace()

    async def scenario() -> None:
        async with store_in(oxia, namespace) as store:
            identity = (await store.instance_id()).encode()
            expected = {"/ledgers": (b"", False), "/ledgers/INSTANCEID": (identity, False)}
            assert oxia.records(namespace) == expected

            assert [await store.new_ledger_id() for _ in range(3)] == [1, 2, 3]
            expected["/ledgers/idgen"] = (b"", False)
            assert oxia.records(namespace) == expected

            await store.create_ledger(ledger_of(1))
            await store.create_ledger(ledger_of(2**31 - 1))
            found = oxia.records(namespace)
            for parent in ("/00", "/00/0000", "/000", "/000/0000", "/000/0000/0021"):
                assert found[f"/ledgers{parent}"] == (b"", False), "Java finds ledgers by folders"
            stored = found["/ledgers/00/0000/L0001"][0]
            assert stored.startswith(b"BookieMetadataFormatVersion\t3\n")
            assert "/ledgers/000/0000/0021/4748/L3647" in found

            registration = await store.register(BOOKIE, INFO, read_only=False)
            data, ephemeral = oxia.records(namespace)[f"/ledgers/available/{BOOKIE}"]
            assert ephemeral
            info = decode(BOOKIE, data)
            assert info.rpc == INFO.rpc
            assert [name for name, _ in info.properties] == [PROCESS_PROPERTY]
            await registration.set_read_only(True)
            found = oxia.records(namespace)
            assert f"/ledgers/available/{BOOKIE}" not in found
            assert found[f"/ledgers/available/readonly/{BOOKIE}"] == (data, True)

            await store.write_cookie(BOOKIE, b"cookie", None)
            marks = store.under_replication
            await marks.mark(LedgerId(10_000), ["a:1"], now_ms=1)
            lock = await marks.lock(LedgerId(10_000), "host")
            assert lock is not None
            candidacy = marks.candidacy("a:1")
            assert await candidacy.is_elected()
            await marks.set_enabled(False)
            await marks.set_recovery_delay_s(60)
            found = oxia.records(namespace)
            below = "/ledgers/underreplication"
            assert found[f"/ledgers/cookies/{BOOKIE}"] == (b"cookie", False)
            assert found[MARK] == (b'replica: "a:1"\nctime: 1\n', False)
            assert found[f"{below}/locks/urL0000010000"] == (b'bookieId: "host"\n', True)
            assert found[f"{below}/leader"] == (b'"a:1"', True)
            assert found[f"{below}/LAYOUT"] == (b'type: "BASIC"\nversion: 1\n', False)
            assert found[f"{below}/disable"] == (b"", False)
            assert found[f"{below}/lostBookieRecoveryDelay"] == (b"60", False)
            assert "/ledgers/LAYOUT" not in found
        left = {key for key, (_, is_ephemeral) in oxia.records(namespace).items() if is_ephemeral}
        assert not left
        assert oxia.do("sessions", namespace=namespace) == 0

    run(scenario)


def test_folders_stay_when_they_are_empty(oxia: Oxia) -> None:
    """A record that another client creates in one at that moment would be in no list."""
    namespace = oxia.new_namespace()

    async def scenario() -> None:
        async with store_in(oxia, namespace) as store:
            await store.create_ledger(ledger_of(1))
            await store.delete_ledger(ONE)
            marks = store.under_replication
            task = await marks.claim(LedgerId(10_000), ["a:1"], 1, "host")
            assert task is not None
            assert await marks.finish(task)
            found = oxia.records(namespace)
            assert "/ledgers/00/0000" in found
            assert MARK not in found
            assert MARK.rpartition("/")[0] in found
            assert [page async for page in store.ledger_ranges()] == []

    run(scenario)


def test_ids_go_on_in_the_long_form(oxia: Oxia) -> None:
    namespace = oxia.new_namespace()

    async def scenario() -> None:
        async with store_in(oxia, namespace) as store:
            assert await store.new_ledger_id() == 1
            tree = store._tree
            await tree.create_branch("/ledgers", "/ledgers/idgen-long/HOB-0000000002")
        async with store_in(oxia, namespace) as store:
            assert await store.new_ledger_id() == (2 << 32) + 1

    run(scenario)


def test_many_ledgers_of_both_lengths_are_listed_in_order(oxia: Oxia) -> None:
    namespace = oxia.new_namespace(5)

    async def scenario() -> None:
        ledgers = [LedgerId(number * 7_919) for number in range(1, 90)]
        ledgers += [LedgerId(2**31 - 1 + number * 10**9) for number in range(40)]
        async with store_in(oxia, namespace) as store:
            await asyncio.gather(*(store.create_ledger(ledger_of(each)) for each in ledgers))
            await store._tree.create("/ledgers/00/0000/other")
            assert [each async for page in store.ledger_ranges() for each in page] == ledgers

    run(scenario)


# ---- refusals -----------------------------------------------------------------------------------


def test_what_is_no_cluster(oxia: Oxia) -> None:
    async def scenario() -> None:
        namespace = oxia.new_namespace()
        with pytest.raises(
            OperatorError, match=f"no cluster at /ledgers in the namespace {namespace}"
        ):
            await connect(oxia.uri(namespace))
        with pytest.raises(MetadataError, match="namespace not found"):
            await connect(oxia.uri("missing"))
        natural = oxia.new_namespace(kind="natural")
        await init_cluster(oxia.uri(natural))
        with pytest.raises(ConfigError, match="not sorted hierarchically"):
            await connect(oxia.uri(natural))
        silent = oxia.new_namespace(kind="silent")
        async with store_in(oxia, silent) as store:
            with pytest.raises(MetadataError, match="notifications not enabled"):
                await anext(store.watch_ledger(ONE))
        with pytest.raises(MetadataUnavailableError, match=r"cannot be reached after 0\.5 s"):
            await connect("metadata-store:oxia://127.0.0.1:1/x", wait_s=0.5)

    run(scenario)


def test_other_stores_do_not_load_grpc(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from bkbox.metadata import create
from bkbox.metadata import zookeeper
import bkbox.supervisor.supervisor
async def go():
    async with await create("sqlite:{tmp_path}/x.db"):
        pass
asyncio.run(go())
assert not {{"grpc", "xxhash"}} & {{*sys.modules}}
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_libraries_the_extra_is_named() -> None:
    code = """
import asyncio, sys
sys.modules["grpc"] = None
from bkbox.metadata import connect
try:
    asyncio.run(connect("metadata-store:oxia://127.0.0.1:1/x"))
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("ConfigError")
    assert "pip install 'bkbox[oxia]'" in done.stdout
