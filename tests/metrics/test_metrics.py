"""Metrics are what their table says, and the dashboard and alert rules use no others."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bkbox.api.admin.status import (
    Boot,
    Clients,
    Copies,
    Counts,
    DiskStatus,
    Latency,
    Limbo,
    Metadata,
    Process,
    ScheduledJob,
    SpaceUsage,
    Stage,
    Status,
)
from bkbox.api.admin.status_parts import Device, Jobs, Losses, Quota, Quotas
from bkbox.jobs.job import Job, JobKind, JobState
from bkbox.metrics.exposition import exposition
from bkbox.metrics.java_names import JAVA_METRICS
from bkbox.metrics.table import METRICS, Metric
from tests.metrics.metricspage import PAGE, page

MONITORING = PAGE.parent / "monitoring"
EVERYWHERE = {"instance", "job", "le"}
"""Labels that Prometheus adds."""

STATUS = Status(
    version="0.1.0",
    bookie_id="10.0.0.1:3181",
    instance_id="i",
    listen="10.0.0.1:3181",
    state="running",
    writable=True,
    ack_after="sync",
    boot=Boot("up", (), 3.0),
    read_only_reasons=("draining",),
    disks=(
        DiskStatus(
            *("/data/a", "6a1c", "clean", "", "in service"),
            *(7, 2, 250, 1_000, ("draining",)),
            stages=(Stage("fsync", 10, 100, 2_000, 3_000, 4_000, 5_000_000, 4, 150, 2_500),),
            operations=(Latency("add", 10, 150, 2_600, 3_000, 4_000, 6_000_000, 4, 250, 3_500),),
            draining=True,
            counts=Counts(11, 12_000, 13, 14),
            device=Device("vda", "ext4", 1, 2, 3_000, 4_000, 5_500, 0, 6),
            space=SpaceUsage(20, 21_000, 22, 23, 24, 1, 2**20, 2**20, 0, 0, 1_600_000_000_000),
        ),
    ),
    processes=(
        Process("supervisor", "b", 1, 0, True, "", 10**7, 1.5, 3.0, 2, 30, 1_700_000_000_000),
        Process("frontend", "b", 2, 3, False, stalled_s=7.0),
    ),
    limbo=Limbo(ledgers=2, done=5, eta_s=9.0),
    jobs=Jobs((Job(4, JobKind.SCRUB, {}, 0, JobState.RUNNING, percent=25.0, blocked=2),), 1, 2, 3),
    started_ms=1_700_000_000_000,
    clients=Clients(5, 600, 7),
    metadata=Metadata("sqlite:/c.db", True, 0.0),
    scheduled_jobs=(ScheduledJob(JobKind.GC, 900.0, 3, JobState.DONE, 1_700_000_000_000),),
    copies=Copies(8, 9, checking=True, checked_ms=1_500_000_000_000, job=4),
    quotas=Quotas((Quota("analytics", 500, 1_000, exceeded=False),)),
    losses=Losses(3, entries=41),
)


def families(text: str) -> dict[str, Any]:
    return {
        sample.name: family
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_metric_of_the_table_is_scraped_with_its_labels() -> None:
    found = families(exposition(STATUS))
    known = known_names()
    left_out = {"bkbox_cookies_match", "bkbox_device_errors_total"}
    assert set(known) - set(found) <= {*left_out, *_of_autorecovery()}
    for name, family in found.items():
        for sample in family.samples:
            assert set(sample.labels) | {"quantile"} == {*known[name].labels, "quantile"}, name
        assert family.documentation == known[name].doc
    assert len({each.name for each in METRICS}) == len(METRICS), "a name is there twice"


def known_names() -> dict[str, Metric]:
    """As they are scraped: a summary has three."""
    return {
        f"{each.shown_name}{suffix}": each
        for each in METRICS
        for suffix in (("", "_count", "_sum") if each.kind == "summary" else ("",))
    }


def _of_autorecovery() -> set[str]:
    return {each.shown_name for each in METRICS if each.name.startswith("bkbox_autorecovery")}


@pytest.mark.parametrize(
    "line",
    [
        'bkbox_state{state="running"} 1.0',
        'bkbox_state{state="starting"} 0.0',
        "bkbox_writable 1.0",
        'bkbox_read_only_reason{reason="draining"} 1.0',
        'bkbox_disk_free_bytes{disk="/data/a"} 250.0',
        'bkbox_limbo_ledgers{disk="/data/a"} 2.0',
        'bkbox_adds_total{disk="/data/a"} 11.0',
        'bkbox_add_bytes_total{disk="/data/a"} 12000.0',
        'bkbox_stage_seconds_sum{disk="/data/a",stage="fsync"} 5.0',
        'bkbox_stage_seconds_count{disk="/data/a",stage="fsync"} 10.0',
        'bkbox_stage_seconds{disk="/data/a",quantile="0.99",stage="fsync"} 0.0025',
        'bkbox_operation_seconds_sum{disk="/data/a",operation="add"} 6.0',
        'bkbox_operation_seconds{disk="/data/a",operation="add",quantile="0.99"} 0.0035',
        'bkbox_process_stalled_seconds{name="b",role="frontend"} 7.0',
        'bkbox_device_busy_seconds_total{disk="/data/a"} 5.5',
        'bkbox_filesystem_errors_total{disk="/data/a"} 6.0',
        'bkbox_job_progress_ratio{job="4",kind="scrub"} 0.25',
        'bkbox_job_blocked_ledgers{job="4",kind="scrub"} 2.0',
        'bkbox_jobs_ended{state="failed"} 2.0',
        "bkbox_copies_short 8.0",
        "bkbox_ended_with_loss_ledgers 3.0",
        "bkbox_ended_with_loss_entries 41.0",
        "bkbox_copies_checked_timestamp_seconds 1.5e+09",
        'bkbox_process_restarts_total{name="b",role="frontend"} 3.0',
        'bkbox_process_resident_memory_bytes{name="b",role="supervisor"} 1e+07',
        'bkbox_scheduled_job_interval_seconds{kind="gc"} 900.0',
    ],
)
def test_values(line: str) -> None:
    assert line in exposition(STATUS).splitlines()


def test_javas_names_come_only_when_they_are_wanted() -> None:
    assert "bookie_" not in exposition(STATUS).replace("bookie_id", "")
    text = exposition(STATUS, java_names=True)
    for line in (
        "bookie_SERVER_STATUS 1.0",
        'bookkeeper_server_ADD_ENTRY_count{success="true"} 11.0',
        "bookie_ledger_num_dirs 1.0",
        "bookie_ledger_writable_dirs 0.0",
        "bookie_ledger_dir__data_a_usage 75.0",
        'bookie_ledgers_count{indexDir="/data/a",ledgerDir="/data/a"} 7.0',
    ):
        assert line in text.splitlines()
    assert len({each.name for each in JAVA_METRICS}) == len(JAVA_METRICS)


def test_a_disk_whose_path_has_quotes_and_newlines_is_escaped() -> None:
    from dataclasses import replace

    odd = replace(STATUS, disks=(replace(STATUS.disks[0], path='/d"\\\n'),))
    found = families(exposition(odd, java_names=True))
    assert found["bkbox_ledgers"].samples[0].labels["disk"] == '/d"\\\n'


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.metrics.metricspage"


# ---- dashboard and rules ----------------------------------------------------------------------------


def expressions() -> list[str]:
    """Of all panels and all rules."""
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    found += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    assert len(found) > 50
    return found


def unknown(expression: str) -> list[str]:
    """Names and labels of an expression that no metric has."""
    known = {name: {*each.labels, *EVERYWHERE} for name, each in known_names().items()}
    found = [name for name in re.findall(r"\bbkbox_\w+", expression) if name not in known]
    for name, selector in re.findall(r"\b(bkbox_\w+){([^}]*)}", expression):
        labels = re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", re.sub(r'"[^"]*"', '""', selector))
        found += [f"{name}: {label}" for label in labels if label not in known.get(name, ())]
    for labels in re.findall(r"\bby \(([^)]*)\)", expression):
        names = re.findall(r"\bbkbox_\w+", expression)
        found += [
            label.strip()
            for label in labels.split(",")
            if not any(label.strip() in known.get(name, ()) for name in names)
        ]
    return found


def test_dashboard_and_rules_use_only_metrics_that_there_are() -> None:
    for expression in expressions():
        assert unknown(expression) == [], expression


def test_what_is_not_there_would_be_seen() -> None:
    assert unknown("sum(bkbox_colour)") == ["bkbox_colour"]
    assert unknown('bkbox_ledgers{colour="blue"}') == ["bkbox_ledgers: colour"]
    assert unknown("sum by (colour) (bkbox_ledgers)") == ["colour"]


def test_texts_of_rules_name_labels_that_their_metrics_have() -> None:
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    known = {name: set(each.labels) for name, each in known_names().items()}
    for group in rules["groups"]:
        for rule in group["rules"]:
            texts = " ".join(rule["annotations"].values())
            used = set(re.findall(r"\$labels\.(\w+)", texts)) - EVERYWHERE
            for name in re.findall(r"\bbkbox_\w+", rule["expr"])[
                :1
            ]:  # with 'and' it gives the labels
                assert used <= known[name], rule["alert"]
            assert not re.search(r"\b(and|unless) (?!on )", rule["expr"]), "labels would not match"


def test_promtool_takes_the_rules() -> None:
    check("rules", str(MONITORING / "alerts.yml"))


@pytest.mark.parametrize(
    ("name", "metric", "summary", "description"),
    [
        (
            *("LedgersEndedWithLoss", "ended_with_loss_ledgers"),
            "2 ledgers of the cluster were ended with loss accepted within a day",
            "Their records say what is lost: bkbox status, bkbox ledger show.",
        ),
        (
            *("EntriesLost", "ended_with_loss_entries"),
            "2 entries of the cluster were recorded as lost within a day",
            "The records name them: bkbox ledger list --lost, bkbox ledger show.",
        ),
    ],
)
def test_a_loss_alerts_for_a_day_and_an_old_one_not_at_all(
    tmp_path: Path, name: str, metric: str, summary: str, description: str
) -> None:
    series = f'bkbox_{metric}{{job="bkbox", instance="%s"}}'
    alert = {
        "exp_labels": {"severity": "critical", "job": "bkbox"},
        "exp_annotations": {"summary": summary, "description": description},
    }
    test = {
        "interval": "1h",
        "input_series": [
            {"series": series % "a", "values": "7x10 9x60"},
            {"series": series % "started-later", "values": "_x12 9x58"},
        ],
        "alert_rule_test": [
            {"eval_time": "9h", "alertname": name, "exp_alerts": []},
            {"eval_time": "14h", "alertname": name, "exp_alerts": [alert]},
            {"eval_time": "50h", "alertname": name, "exp_alerts": []},
        ],
    }
    rules = tmp_path / "rules.yml"
    files = [str(MONITORING / "alerts.yml")]
    rules.write_text(yaml.safe_dump({"rule_files": files, "tests": [test]}))
    promtool("test", "rules", str(rules))


def test_promtool_takes_what_is_scraped() -> None:
    check("metrics", stdin=exposition(STATUS))


def check(*arguments: str, stdin: str = "") -> None:
    promtool("check", *arguments, stdin=stdin)


def promtool(*arguments: str, stdin: str = "") -> None:
    if shutil.which("promtool") is None:
        reason = "no promtool: it is in Debian's package prometheus"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    done = subprocess.run(
        ["promtool", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
