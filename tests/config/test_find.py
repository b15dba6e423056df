"""The configuration that is found where none is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkbox.config import find
from bkbox.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(find, "FOLDER", tmp_path)
    return tmp_path


def test_the_variable_comes_before_the_default_path(folder: Path) -> None:
    (folder / "bookie.toml").touch()
    assert find.found({}) == folder / "bookie.toml"
    assert find.found({"BKBOX_CONFIG": ""}) == folder / "bookie.toml"
    assert find.found({"BKBOX_CONFIG": "other.toml"}) == Path("other.toml")


def test_the_only_configuration_of_the_folder_is_found_whatever_its_name(folder: Path) -> None:
    (folder / "notes.txt").touch()
    (folder / "folder.toml").mkdir()
    (folder / "bkbox.toml").touch()
    assert find.found({}) == folder / "bkbox.toml"
    (folder / "bookie.toml").touch()
    assert find.found({}) == folder / "bookie.toml"


def test_of_several_none_is_chosen(folder: Path) -> None:
    (folder / "a.toml").touch()
    (folder / "b.toml").touch()
    with pytest.raises(ConfigError, match=r"several .*: a\.toml, b\.toml; name one with --config"):
        find.found({})


def test_where_there_is_none_the_error_names_the_three_ways(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in (folder, folder / "absent"):
        monkeypatch.setattr(find, "FOLDER", at)
        with pytest.raises(ConfigError) as raised:
            find.found({})
        for way in ("--config FILE", "BKBOX_CONFIG", "/etc/bkbox/bookie.toml", "only *.toml"):
            assert way in str(raised.value)


def test_what_is_found_without_being_named(folder: Path) -> None:
    file = folder / "bookie.toml"
    assert not find.leads_to(file, {})
    file.touch()
    (folder / "link.toml").symlink_to(file)
    assert find.leads_to(file, {})
    assert find.leads_to(file, {"BKBOX_CONFIG": str(folder / "link.toml")})
    (folder / "other.toml").touch()
    assert not find.leads_to(file, {"BKBOX_CONFIG": str(folder / "other.toml")})
    assert not find.leads_to(file, {"BKBOX_CONFIG": str(folder / "absent.toml")})
