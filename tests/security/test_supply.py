"""What a lock has and lacks; the check of versions finds what is affected, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.security.supply import (
    STAGES,
    Pinned,
    affected,
    lock_of,
    locked,
    not_locked,
    vulnerabilities,
    wanted,
)

PACKAGE = Pinned("some-package", "2.5.1", ("0" * 64,))


def entry(
    *events: dict[str, str], versions: tuple[str, ...] = (), name: str = "Some_Package"
) -> dict[str, object]:
    return {
        "id": "PYSEC-1",
        "summary": "it breaks",
        "affected": [
            {
                "package": {"ecosystem": "PyPI", "name": name},
                "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
                "versions": list(versions),
            }
        ],
    }


def test_what_a_lock_has() -> None:
    found = locked(
        f"some_package==2.5.1 \\\n    --hash=sha256:{'0' * 64}\n    # via x\nother==1 ; python_version < '3.12'\n"
    )
    assert found == [PACKAGE, Pinned("other", "1", ())]
    assert len(not_locked(found, wanted("run"))) == len(wanted("run"))


@pytest.mark.parametrize("stage", STAGES)
def test_a_lock_is_of_this_project(stage: str) -> None:
    packages = locked(lock_of(stage).read_text())
    assert not_locked(packages, wanted(stage)) == [], "run: python -m tests.security.supply lock"
    assert all(each.hashes for each in packages)


def test_no_stage_changes_what_another_has() -> None:
    found: dict[str, set[str]] = {}
    for stage in STAGES:
        versions: dict[str, set[str]] = {}
        for each in locked(lock_of(stage).read_text()):
            versions.setdefault(each.name, set()).add(each.version)  # one for each of some Pythons
        for name, its in versions.items():
            assert found.setdefault(name, its) == its, name


@pytest.mark.parametrize(
    ("found", "is_affected"),
    [
        (entry({"introduced": "0"}), True),
        (entry({"introduced": "0"}, {"fixed": "2.5.1"}), False),
        (entry({"introduced": "0"}, {"fixed": "2.5.2"}), True),
        (entry({"introduced": "0"}, {"fixed": "1.0"}, {"introduced": "2.5"}, {"fixed": "3"}), True),
        (entry({"introduced": "0"}, {"fixed": "1.0"}, {"introduced": "2.6"}), False),
        (entry({"introduced": "2"}, {"last_affected": "2.5.1"}), True),
        (entry({"introduced": "2"}, {"last_affected": "2.5.0"}), False),
        (entry(versions=("2.5.1",)), True),
        (entry(versions=("2.5",)), False),
        (entry({"introduced": "0"}, name="other"), False),
        (entry({"introduced": "0"}) | {"withdrawn": "2024-01-01T00:00:00Z"}, False),
    ],
)
def test_which_versions_are_affected(found: dict[str, object], is_affected: bool) -> None:
    assert bool(affected([PACKAGE], [found])) is is_affected


def test_lists_of_vulnerabilities(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(entry({"introduced": "0"})))
    (tmp_path / "more.json").write_text(json.dumps([entry(), entry()]))
    assert len(list(vulnerabilities(tmp_path))) == 3
    assert affected([PACKAGE], vulnerabilities(tmp_path)) == [
        "some-package 2.5.1: PYSEC-1: it breaks"
    ]
