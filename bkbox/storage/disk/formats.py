"""The formats of what a folder of a bookie holds, compared with those of this version before anything is written to it.

A refused start leaves the folder byte for byte as the newer version left it: also without a dirty marker, after which
that version would have to suspect a loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bkbox.errors import DiskError, FormatVersionError
from bkbox.storage.checksummed_document import FORMATS, read_document
from bkbox.storage.files import Files
from bkbox.storage.log.segment import (
    ENTRY_LOG_DIR,
    SEGMENT_HEADER_BYTES,
    decode_segment_header,
    parse_segment_file_name,
)

_SET_ASIDE = "JOBS"
"""The history of jobs has its own answer: a newer one is set aside."""
_UUID_LENGTH = 36


def check_formats(files: Files, folder: Path) -> None:
    """Raises FormatVersionError if a document or the newest segment of a data disk or journal directory has a newer
    format than this version reads. What is damaged or cannot be read is left to those who need it."""
    for name in FORMATS:
        if name != _SET_ASIDE:
            with _newer_only():
                read_document(files, folder / name)
    for segments in _logs(files, folder):
        with _newer_only():
            newest = max(filter(parse_segment_file_name, files.listdir(segments)), default=None)
            if newest is not None:
                with closing(files.open_read(segments / newest)) as segment:
                    header = segment.pread(0, SEGMENT_HEADER_BYTES)
                decode_segment_header(header, segments / newest)


def _logs(files: Files, folder: Path) -> list[Path]:
    """The folders with segments: the entry log of a disk, or the journal of each disk, by its uuid."""
    names = []
    with _newer_only():
        names = files.listdir(folder)
    return [folder / name for name in names if name == ENTRY_LOG_DIR or len(name) == _UUID_LENGTH]


@contextmanager
def _newer_only() -> Iterator[None]:
    try:
        yield
    except FormatVersionError:
        raise
    except DiskError:
        pass
