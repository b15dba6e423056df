"""Every golden vector holds, and a vector that is wrong is noticed."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bkbox.wire import vectors

FOLDER = Path(__file__).parent / "vectors"
FILES = sorted(path for path in FOLDER.glob("*.json") if path.name != "wire-v3.json")
CASES = [
    pytest.param(case, id=f"{path.stem}:{case.name}")
    for path in FILES
    for case in vectors.load(path.read_text(encoding="utf-8")).cases
]

PROVEN_FIELDS = {
    "frame", "packet", "master_key", "hmac_key", "digest", "digest_size", "groups", "total",
    "rewritten_unchanged_hex", "after_next_update_hex", "verify", "verify_is_superset", "equals",
    "bookie_id", "legacy_host_port", "master_key_hex", "checked_up_to_entry", "lock_path",
    "id_read_back", "is_ledger_parent", "is_special", "prefix", "created_node",
}  # fmt: skip
"""Fields that are derived from all the others: any change to one of them has to be noticed."""


def _changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if not value:
        return "00"
    return value[:-1] + ("1" if value[-1] == "0" else "0")


@pytest.mark.parametrize("case", CASES)
def test_holds(case: vectors.NamedCase) -> None:
    assert vectors.problems(case) == []


@pytest.mark.parametrize("case", CASES)
def test_a_change_is_noticed(case: vectors.NamedCase) -> None:
    fields = PROVEN_FIELDS & case.case.keys()
    if "bookie_id" in case.case and "value" not in case.case:
        fields -= {"bookie_id"}
    for field in fields:
        wrong = copy.deepcopy(dict(case.case))
        wrong[field] = _changed(wrong[field])
        assert vectors.problems(vectors.NamedCase(case.name, wrong, case.check)), field


@pytest.mark.parametrize("case", CASES)
def test_parsed_is_compared_field_by_field(case: vectors.NamedCase) -> None:
    parsed = case.case.get("parsed")
    for field in parsed if isinstance(parsed, dict) else ():
        wrong = copy.deepcopy(dict(case.case))
        wrong["parsed"][field] = "wrong"
        assert any(
            field in text
            for text in vectors.problems(vectors.NamedCase(case.name, wrong, case.check))
        )


def _run(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bkbox.wire.vectors", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_command_on_good_files() -> None:
    done = _run(*FILES)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(FILES)
    assert all(line.endswith(" 0 failing") for line in done.stdout.splitlines())


def test_command_names_the_failing_case(tmp_path: Path) -> None:
    content = json.loads((FOLDER / "wire-v2.json").read_text(encoding="utf-8"))
    content["cases"][6]["fields"]["entryId"] = 3
    content["cases"][8]["frame"] = content["cases"][8]["frame"][:-2]
    wrong = tmp_path / "renamed.json"
    wrong.write_text(json.dumps(content))
    done = _run(wrong)
    assert done.returncode == 1
    first, second, summary = done.stdout.splitlines()
    assert first.startswith(f"{wrong}: read_plain: ")
    assert "entryId: expected 3, found 2" in first
    assert second.startswith(f"{wrong}: read_fence_lac: ")
    assert summary == f"{wrong}: wire-v2: 27 cases, 2 failing"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "not an object"),
        ('{"cases": []}', "unknown kind"),
        ('{"cases": [{"a": 1}]}', "unknown kind"),
        ('{"groups": [1]}', "unknown kind"),
        ((FOLDER / "wire-v3.json").read_text(encoding="utf-8"), "version 3"),
    ],
)
def test_what_cannot_be_checked_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, reason: str
) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    assert vectors.main([str(FILES[0]), str(path)]) == 2
    assert reason in capsys.readouterr().out


def test_a_missing_file_and_no_file() -> None:
    assert vectors.main(["/nonexistent/vectors.json"]) == 2
    assert vectors.main([]) == 2


def test_unknown_groups_and_odd_cases_do_not_pass() -> None:
    text = '{"small_znodes": [{"kind": "new"}, 3, {}], "write_sets": [], "news": [{"a": 1}]}'
    found = [bool(vectors.problems(case)) for case in vectors.load(text).cases]
    assert found == [True] * 4
