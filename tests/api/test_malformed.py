"""Callers who have no token, and send nonsense, fill no log and keep out no others."""

from __future__ import annotations

import logging
import socket
import time
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path

import pytest

from bkbox.api.admin import server
from bkbox.base.logs.rate_limited import BoundLibraries
from tests.api.malformed import REQUESTS, TOKEN, bookie_with_port, send
from tests.api.serving import Serving
from tests.harness.waiting import wait_for

COUNT = 1_000


def test_malformed_requests_write_a_bounded_log_without_tracebacks(tmp_path: Path) -> None:
    with bookie_with_port(tmp_path) as (bookie, port):
        before, began_s = len(bookie.stderr), time.monotonic()
        sent = send(port, islice(cycle(REQUESTS), COUNT))
        assert sent > 0.9 * COUNT
        gone_s = time.monotonic() - began_s
        said = bookie.stderr[before:]
    assert "malformed HTTP" in said
    assert "more like it since the last line" in said
    for never in ("Traceback", "  File ", "yyyyyyyy", "aaaaaaaa", TOKEN):
        assert never not in said
    kinds = 4  # what is malformed, what is refused, what is asked for, the rest of the log
    assert len(said.splitlines()) <= kinds * (10 + gone_s + 1)
    assert max(map(len, said.splitlines())) < 300


def test_lines_of_libraries_are_bounded_by_where_they_come_from() -> None:
    now_s = 0.0
    bound = BoundLibraries(lambda: now_s)

    def said(name: str, line: int, text: str) -> str | None:
        record = logging.LogRecord(name, logging.ERROR, "web.py", line, text, None, None)
        return record.getMessage() if bound.filter(record) else None

    found = [said("kazoo.client", 1, f"error {number}") for number in range(100)]
    assert [each for each in found if each] == [f"error {number}" for number in range(10)]
    assert said("kazoo.client", 2, "another place") == "another place"
    assert said("asyncio", 1, "another library") == "another library"
    assert all(said("bkbox.repair.space.gc", 1, "ours") for _ in range(100)), (
        "has bounds of its own"
    )
    now_s = 1.0
    assert said("kazoo.client", 1, "x") == "x (and 90 more like it since the last line)"


def test_half_requests_of_one_address_keep_out_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PER_ADDRESS_MAX", 4)
    with Serving() as serving, ExitStack() as held:
        halves = []
        for _ in range(4):
            half = socket.create_connection(("127.0.0.1", serving.port), timeout=20)
            half.sendall(b"GET /read/a HT")
            halves.append(held.enter_context(half))
            if not halves[1:]:  # who has shown a token does not count
                for _ in range(6):
                    known = held.enter_context(
                        socket.create_connection(("127.0.0.1", serving.port), 20)
                    )
                    known.sendall(
                        f"GET /read/a HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
                    )
                    assert b" 200 " in known.recv(100)
        with socket.create_connection(("127.0.0.1", serving.port), timeout=20) as one_more:
            assert one_more.recv(1) == b"", "too many of this address"
        elsewhere = socket.create_connection(
            ("127.0.0.1", serving.port), timeout=20, source_address=("127.0.0.2", 0)
        )
        with elsewhere:
            elsewhere.sendall(b"GET /read/a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b" 401 " in elsewhere.recv(100)
        halves[0].close()
        wait_for(lambda: _asked(serving) == 200, "room for one more")


def _asked(serving: Serving) -> int:
    try:
        return serving.ask("GET", "/read/a")[0]
    except OSError:
        return 0
