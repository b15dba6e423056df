"""What a lock has and lacks; the check of versions finds what is affected, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.security.supply import (
    DOCS_LOCK,
    LOCK,
    Pinned,
    affected,
    bill,
    locked,
    not_locked,
    vulnerabilities,
    wanted,
    wanted_for_docs,
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
    assert len(not_locked(found, wanted())) == len(wanted())


def test_the_lock_is_of_this_project() -> None:
    packages = locked(LOCK.read_text())
    for_docs = locked(DOCS_LOCK.read_text())
    assert not_locked(packages, wanted()) == [], "run: python -m tests.security.supply lock"
    assert not_locked(for_docs, wanted_for_docs()) == [], "the same"
    assert all(each.hashes for each in [*packages, *for_docs])


def test_the_packages_of_the_site_change_no_other() -> None:
    versions = {each.name: each.version for each in locked(LOCK.read_text())}
    for each in locked(DOCS_LOCK.read_text()):
        assert versions.get(each.name, each.version) == each.version, each.name


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


def test_the_bill_of_materials() -> None:
    made = bill([PACKAGE])
    assert made["components"][0]["purl"] == "pkg:pypi/some-package@2.5.1"
    assert json.dumps(made)
