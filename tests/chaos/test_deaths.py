"""Which ends of processes count as ends by themselves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from proof.chaos.run import _deaths

LEAVES = "[error] this worker ends: /d/1 is not the folder of the disk any more: it is not there"
ENDED = "[error] the worker of disk /d/1 ended: exit status 0 [restart_policy]"


@pytest.mark.parametrize(
    ("lines", "deaths"),
    [
        ([LEAVES, ENDED, ENDED], []),
        ([ENDED, LEAVES], []),
        ([ENDED], [ENDED]),
        ([LEAVES, ENDED.replace("/d/1", "/d/2")], [ENDED.replace("/d/1", "/d/2")]),
        ([LEAVES, ENDED.replace("status 0", "status 1")], [ENDED.replace("status 0", "status 1")]),
        ([LEAVES, "Traceback (most recent call last):"], ["Traceback (most recent call last):"]),
    ],
)
def test_a_worker_whose_disk_was_taken_away_has_to_end(
    tmp_path: Path, lines: list[str], deaths: list[str]
) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(lines))
    assert _deaths(SimpleNamespace(log=log)) == deaths  # type: ignore[arg-type]
