"""``python -m tests.vectors FILE …``: check files of golden vectors against this
implementation.

Each case is decoded, compared field by field, encoded and compared byte by byte; cases that have
to be refused have to be. What a file is about is seen from its content: frames of version 2 or 3,
digests, availability lists, metadata, or paths. Standard output has a line per failing case
(file, case, what differs) and a summary line per file.

Exit codes: 0 all cases hold; 1 some do not; 2 a file could not be read, or is of a kind that is
not known here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bkbox.errors import BkboxError, EncodingError
from bkbox.wire.frames import PREFIX_BYTES
from bkbox.wire.v3 import FIRST_BYTE_MIN
from tests.vectors.common import Case, Check
from tests.vectors.metadata import METADATA_CHECKS
from tests.vectors.paths import path_checks
from tests.vectors.v3 import check_message
from tests.vectors.wire import check_availability, check_digest, check_frame

EXIT_GOOD = 0
EXIT_FAILING = 1
EXIT_UNUSABLE = 2

_CASE_CHECKS: dict[str, Check] = {
    "wire-v2": check_frame,
    "wire-v3": check_message,
    "digests": check_digest,
    "availability": check_availability,
}


@dataclass(frozen=True, slots=True)
class NamedCase:
    """One case, its name, and how to check it; no check if its group is unknown."""

    name: str
    case: Case
    check: Check | None


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A file's cases, and what they are about."""

    kind: str
    cases: tuple[NamedCase, ...]


def load(text: str) -> VectorFile:
    """The cases of a file of vectors. Raises EncodingError if they cannot be checked."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EncodingError(f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise EncodingError("not an object")
    if isinstance(content.get("cases"), list):
        return _from_cases(content["cases"])
    groups = {name: value for name, value in content.items() if isinstance(value, list)}
    for kind, checks in (
        ("metadata", METADATA_CHECKS),
        ("paths", path_checks(str(content.get("root", "/ledgers")))),
    ):
        if groups and not checks.keys().isdisjoint(groups):
            return VectorFile(kind, tuple(_from_groups(groups, checks)))
    raise EncodingError("vectors of an unknown kind")


def _from_cases(cases: list[Any]) -> VectorFile:
    kinds = [_kind_of(case) for case in cases]
    kind = next((each for each in kinds if each in _CASE_CHECKS), None)
    if kind is None and _FRAME in kinds:
        kind = _kind_of_frame(cases[kinds.index(_FRAME)]["frame"])
    if kind is None:
        raise EncodingError("vectors of an unknown kind")
    own = {kind, _FRAME} if kind.startswith("wire") else {kind}
    return VectorFile(
        kind,
        tuple(
            NamedCase(
                _name(case, f"case {index}"), case, _CASE_CHECKS[kind] if found in own else None
            )
            for index, (case, found) in enumerate(zip(cases, kinds, strict=True))
        ),
    )


_FRAME = "a frame of either version"


def _kind_of(case: Any) -> str | None:
    """What a case of a flat list is about; frames that have to be refused do not tell."""
    if not isinstance(case, dict):
        return None
    if "frame" in case:
        if "message" in case or "fields" in case:
            return "wire-v2" if "fields" in case else "wire-v3"
        return _FRAME
    if "encoded" in case:
        return "availability"
    return "digests" if "password" in case and "kind" in case else None


def _kind_of_frame(frame: Any) -> str:
    """By the first byte of the body, as bookies do."""
    first = str(frame)[2 * PREFIX_BYTES :][:2]
    return "wire-v2" if first < f"{FIRST_BYTE_MIN:02x}" else "wire-v3"


def _from_groups(groups: dict[str, list[Any]], checks: dict[str, Check]) -> Iterator[NamedCase]:
    for group, cases in groups.items():
        for index, case in enumerate(cases):
            yield NamedCase(_name(case, f"{group}[{index}]"), case, checks.get(group))


def _name(case: Any, position: str) -> str:
    if not isinstance(case, dict):
        return position
    if "name" in case:
        return str(case["name"])
    return f"{position} ({case['description']})" if "description" in case else position


def problems(case: NamedCase) -> list[str]:
    """What does not hold in a case; empty if all does."""
    if case.check is None:
        return ["nothing is known about cases of this kind"]
    if not isinstance(case.case, dict):
        return ["not an object"]
    found: list[str] = []
    try:
        found.extend(case.check(case.case))
    except BkboxError as error:
        found.append(f"{type(error).__name__}: {error}")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        found.append(f"the case has not the form of its kind: {type(error).__name__}: {error}")
    return found


def check_file(path: str) -> int:
    """Check one file, report on standard output, and return its exit code."""
    try:
        vectors = load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, EncodingError) as error:
        sys.stdout.write(f"{path}: cannot be checked: {error}\n")
        return EXIT_UNUSABLE
    failing = 0
    for case in vectors.cases:
        found = problems(case)
        failing += bool(found)
        if found:
            sys.stdout.write(f"{path}: {case.name}: {'; '.join(found)}\n")
    sys.stdout.write(f"{path}: {vectors.kind}: {len(vectors.cases)} cases, {failing} failing\n")
    return EXIT_FAILING if failing else EXIT_GOOD


def main(paths: Sequence[str]) -> int:
    """Check all files; the exit code is the gravest of theirs."""
    if not paths:
        sys.stdout.write("usage: python -m tests.vectors FILE …\n")
        return EXIT_UNUSABLE
    return max([check_file(path) for path in paths])
