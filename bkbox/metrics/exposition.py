"""The text that Prometheus scrapes: one custom collector over a status document.

No process keeps metrics of its own: they are counted where the work is done, come to the supervisor with the status
document, and agree with every other window of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest

from bkbox.api.admin.status import Status
from bkbox.metrics.java_names import JAVA_METRICS, dir_name
from bkbox.metrics.table import METRICS, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class StatusCollector:
    """The metrics of one status document."""

    def __init__(self, status: Status, *, java_names: bool) -> None:
        self._status = status
        self._java_names = java_names

    def collect(self) -> Iterator[Metric]:
        for each in METRICS:
            family = Metric(each.name, each.doc, each.kind)
            for found in each.samples(self._status):
                family.add_sample(
                    each.shown_name + found.suffix, _labels(each.labels, found), found.value
                )
            yield family
        if self._java_names:
            yield from self._java()

    def _java(self) -> Iterator[Metric]:
        for each in JAVA_METRICS:
            # A counter of prometheus_client would get a name that ends in _total.
            kind = "unknown" if each.counter else "gauge"
            if "*" in each.name:
                for found in each.samples(self._status):
                    name = each.name.replace("*", dir_name(found.labels[0]))
                    family = Metric(name, each.doc, kind)
                    family.add_sample(name, {}, found.value)
                    yield family
                continue
            family = Metric(each.name, each.doc, kind)
            for found in each.samples(self._status):
                family.add_sample(each.name, _labels(each.labels, found), found.value)
            yield family


def _labels(names: tuple[str, ...], found: Sample) -> dict[str, str]:
    return {name: value for name, value in zip(names, found.labels, strict=True) if value}


def exposition(status: Status, *, java_names: bool = False) -> str:
    """In the text format 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatusCollector(status, java_names=java_names))
    return generate_latest(registry).decode()
