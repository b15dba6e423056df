"""What a newer version wrote is noticed, whatever file it is in; damage is not taken for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkbox.errors import FormatVersionError
from bkbox.storage.checksummed_document import FORMATS, write_document
from bkbox.storage.disk.formats import check_formats
from bkbox.storage.files import RealFiles


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"JOBS"}))
def test_a_newer_document_is_noticed(tmp_path: Path, name: str) -> None:
    write_document(RealFiles(), tmp_path / name, {})
    check_formats(RealFiles(), tmp_path)
    write_document(RealFiles(), tmp_path / name, {"format": FORMATS[name] + 1})
    with pytest.raises(FormatVersionError, match=f"{name}: format {FORMATS[name] + 1}"):
        check_formats(RealFiles(), tmp_path)


def test_damage_is_left_to_others(tmp_path: Path) -> None:
    (tmp_path / "DIRTY").write_bytes(b"not a document")
    (tmp_path / "entrylog").mkdir()
    (tmp_path / "entrylog" / "0000000001.log").write_bytes(b"short")
    check_formats(RealFiles(), tmp_path)
    check_formats(RealFiles(), tmp_path / "missing")


def test_what_cannot_be_read_is_left_to_others(tmp_path: Path) -> None:
    (tmp_path / "entrylog").touch()
    (tmp_path / "DIRTY").mkdir()
    check_formats(RealFiles(), tmp_path)
