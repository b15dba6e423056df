"""docs/metrics.md, made from the tables: ``python -m tests.metrics.metricspage`` writes it."""

from __future__ import annotations

from pathlib import Path

from bkbox.metrics.java_names import JAVA_METRICS
from bkbox.metrics.table import METRICS

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"

HEAD = """\
# Metrics

Made from `bkbox/metrics/table.py` and `javanames.py` by `python -m tests.metrics.metricspage`; a test compares.

`/metrics` of the admin API ([http.md](http.md)), in Prometheus's text format. Every value is one of the status
document: `bkbox status -o json` shows the same. What is not known (a counter that the kernel does not have) is left
out. Counters of a disk begin anew with its worker, all others with the bookie.

```yaml
scrape_configs:
  - job_name: bkbox
    scheme: https   # http_tls = "required"
    tls_config:
      ca_file: /etc/prometheus/bkbox-ca.crt
    authorization:
      credentials_file: /etc/prometheus/bkbox-read-token
    static_configs:
      - targets: ["bookie1.example.com:8080"]
```

There are a [Grafana dashboard](monitoring/grafana-dashboard.json) and [alert rules](monitoring/alerts.yml); a test
holds every name in them against this list.

| metric | type | labels | what it is |
|---|---|---|---|
"""

JAVA_HEAD = """
## Names of Apache's bookie

With `metrics_java_names = true` also these, which dashboards for Apache's bookie chart, as far as bkbox counts the same
thing. Latencies are milliseconds, as Java's; they come as counts and sums, without quantiles. `*` is the path of a
disk.

| metric | type | labels | what it is |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    own = "".join(
        f"| `{each.shown_name}` | {each.kind} | {', '.join(each.labels)} | {each.doc} |\n"
        for each in METRICS
    )
    java = "".join(
        f"| `{each.name}` | {'counter' if each.counter else 'gauge'} | {', '.join(each.labels)} | {each.doc} |\n"
        for each in JAVA_METRICS
    )
    return HEAD + own + JAVA_HEAD + java


if __name__ == "__main__":
    PAGE.write_text(page())
