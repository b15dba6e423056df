"""What is read from the pages of Apache's HTTP server."""

from __future__ import annotations

import pytest

from bkbox.api.cluster.java import counters_of, rates, state_of

PAGE = """# TYPE bookkeeper_server_ADD_ENTRY_REQUEST summary
bookkeeper_server_ADD_ENTRY_REQUEST{success="false",quantile="0.99"} 99.0
bookkeeper_server_ADD_ENTRY_REQUEST{success="true",quantile="0.5"} 0.5
bookkeeper_server_ADD_ENTRY_REQUEST{success="true",quantile="0.99"} 1.25
bookkeeper_server_ADD_ENTRY_REQUEST_count{success="false"} 7
bookkeeper_server_ADD_ENTRY_REQUEST_count{success="true"} 1000
bookkeeper_server_READ_ENTRY_REQUEST{success="true",quantile="0.99"} NaN
bookkeeper_server_READ_ENTRY_REQUEST_count{success="true"} 50
bookie_WRITE_BYTES 4096
bookie_WRITE_BYTES_broken no-number
"""


def test_counters_are_those_of_what_succeeded() -> None:
    found = counters_of(PAGE, 10.0)
    assert found is not None
    assert (found.adds, found.reads, found.bytes) == (1000, 50, 4096)
    assert (found.add_p99_us, found.read_p99_us) == (1250, None)


def test_rates_are_between_two_looks_and_never_across_a_restart() -> None:
    before, after = counters_of(PAGE, 10.0), counters_of(PAGE.replace(" 1000", " 1500"), 12.0)
    assert before is not None
    assert after is not None
    assert rates(before, after).adds == 250.0
    assert rates(None, after).adds is None
    assert rates(after, before).adds is None
    assert rates(None, after).add_p99_us == 1250


def test_a_page_without_the_counters_tells_nothing() -> None:
    assert counters_of("# nothing\njvm_memory_bytes 5\n", 1.0) is None


@pytest.mark.parametrize(
    ("document", "state"),
    [
        ({"running": True, "readOnly": False, "shuttingDown": False}, "writable"),
        ({"running": True, "readOnly": True}, "read-only"),
        ({"running": True, "shuttingDown": True}, "stopping"),
        ({"running": False}, "starting"),
        ([], "starting"),
    ],
)
def test_the_state(document: object, state: str) -> None:
    assert state_of(document) == state
