"""Reads the HTTP server of Apache's bookie: its state, and the counters of its Prometheus page. Pure.

Sources: HttpRouter.java, BookieStateService.java, PrometheusTextFormat.java, BookKeeperServerStats.java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bkbox.api.cluster.rows import Report, State

STATE_URL, METRICS_URL = "/api/v1/bookie/state", "/metrics"

_ADDS = "bookkeeper_server_ADD_ENTRY_REQUEST"
_READS = "bookkeeper_server_READ_ENTRY_REQUEST"
_WRITTEN = "bookie_WRITE_BYTES"
_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{([^}]*)\})? +(\S+)")


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters since the bookie started, at the monotonic second ``at_s``; p99 in microseconds, where there is one."""

    at_s: float
    adds: float
    reads: float
    bytes: float
    add_p99_us: int | None
    read_p99_us: int | None


def counters_of(page: str, at_s: float) -> Counters | None:
    """None: the page has none of them, as with a stats provider of another kind."""
    sums = dict.fromkeys((f"{_ADDS}_count", f"{_READS}_count", _WRITTEN), 0.0)
    p99: dict[str, int] = {}
    found = False
    for line in page.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        name, labels, text = match[1], match[2] or "", match[3]
        try:
            value = float(text)
        except ValueError:
            continue
        if value != value or 'success="false"' in labels:  # NaN: nothing was measured
            continue
        if name in sums:
            sums[name] += value
            found = True
        elif name in (_ADDS, _READS) and 'quantile="0.99"' in labels:
            p99[name] = max(p99.get(name, 0), int(value * 1000))
    if not found:
        return None
    adds, reads, written = sums.values()
    return Counters(at_s, adds, reads, written, p99.get(_ADDS), p99.get(_READS))


def state_of(document: object) -> State:
    """The state in a response of STATE_URL."""
    state: Mapping[str, object] = document if isinstance(document, Mapping) else {}
    if state.get("shuttingDown"):
        return "stopping"
    if not state.get("running"):
        return "starting"
    return "read-only" if state.get("readOnly") else "writable"


def rates(before: Counters | None, now: Counters) -> Report:
    """A report with the rates between the two; without, if there is no earlier one or the bookie was restarted."""
    p99 = Report(add_p99_us=now.add_p99_us, read_p99_us=now.read_p99_us)
    if before is None or now.at_s <= before.at_s or now.adds < before.adds:
        return p99
    took_s = now.at_s - before.at_s
    return Report(
        adds=(now.adds - before.adds) / took_s,
        reads=max(0.0, now.reads - before.reads) / took_s,
        bytes=max(0.0, now.bytes - before.bytes) / took_s,
        add_p99_us=p99.add_p99_us,
        read_p99_us=p99.read_p99_us,
    )
