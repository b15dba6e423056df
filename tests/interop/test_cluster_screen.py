"""One of Apache's bookies on the cluster screen: its row, when it is killed, and when it is back."""

from __future__ import annotations

from tests.harness.clusterscreen import Screen
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import BkboxBookie


def test_the_row_of_a_java_bookie(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("screen", java=1, bkbox=1)
    (java,), (ours,) = cluster.of_kind("java"), cluster.of_kind("bkbox")
    assert isinstance(ours, BkboxBookie)
    screen = Screen(cluster.uri, ours)
    try:
        screen.see(
            java, "one of Apache's", lambda row: (row.state, row.verdict) == ("writable", "ok")
        )
        row = screen.row(java)
        assert row is not None
        assert row.report.version == "Apache BookKeeper"
        assert row.report.total_bytes
        assert "httpServerEnabled" in row.problems[0]
        java.ensure_gone()
        screen.see(java, "it was killed", lambda row: row.state in ("no answer", "down"))
        screen.see(java, "the end of its registration", lambda row: row.state == "down")
        java.launch_bookie()
        java.wait_ready()
        screen.see(java, "it is back", lambda row: (row.state, row.verdict) == ("writable", "ok"))
        screen.see_well(ours, "all of this")
    finally:
        screen.close()
