"""Many entries each way between the two clients, over an ensemble of both kinds of bookies.

``INTEROP_ENTRIES=1000000 pytest tests/interop/test_many_entries.py`` for a million.
"""

from __future__ import annotations

import os

import pytest

from tests.interop.clients import numbered, pattern
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import InteropCluster
from tests.interop.test_mixed_ensembles import SIDES, parties

ENTRIES = int(os.environ.get("INTEROP_ENTRIES", "10000"))
ENTRY_BYTES = 100
APPENDED_AT_ONCE, READ_AT_ONCE = 50_000, 5_000

pytestmark = pytest.mark.timeout(120 + ENTRIES // 1_000)


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> InteropCluster:
    return make_cluster("many-entries", java=2, bkbox=1)


@pytest.mark.parametrize("sides", SIDES, ids="-".join)
@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_what_one_client_writes_the_other_reads(
    cluster: InteropCluster, protocol: str, sides: tuple[str, str]
) -> None:
    both = parties(cluster, sides, protocol)
    writer = both.writer.create(3, 3, 2)
    for first in range(0, ENTRIES, APPENDED_AT_ONCE):
        count = min(APPENDED_AT_ONCE, ENTRIES - first)
        assert writer.append_async(count, ENTRY_BYTES, first=first) == first + count - 1
    writer.close()
    reader = both.reader.open(writer.ledger)
    assert reader.lac() == ENTRIES - 1
    for first in range(0, ENTRIES, READ_AT_ONCE):
        last = min(first + READ_AT_ONCE, ENTRIES) - 1
        expected = [pattern(entry, ENTRY_BYTES) for entry in range(first, last + 1)]
        assert reader.read(first, last) == numbered(expected, first)
    both.reader.delete(writer.ledger)
