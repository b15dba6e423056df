"""Quotas: the bytes that the ledgers of an owner may take on the disks of one bookie.

In the configuration, one text for each owner: ``OWNER=SIZE``. ``*`` stands for each owner that no other text names,
each with a bound of its own, and also for ledgers without an owner, which count together. An owner without a bound is
not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from bkbox.base.text import quoted
from bkbox.base.values import frozen_struct
from bkbox.security.roles import EVERYBODY, NAME_CHARACTERS_MAX

_SIZE = re.compile(r"([0-9]{1,15})\s*([A-Za-z]*)")
_SHIFTS = {"": 0, "B": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50}
_SHIFTS |= {f"{unit}IB": shift for unit, shift in _SHIFTS.items() if shift}


@frozen_struct
class Use:
    """Use and bound of an owner, in bytes."""

    owner: str
    bytes: int
    bytes_max: int

    @property
    def is_over(self) -> bool:
        """True if the owner may store nothing more."""
        return self.bytes >= self.bytes_max


class Quotas:
    """The bounds of all owners; false if there are none."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """Raises ValueError."""
        self._bounds = dict(map(parse_quota, texts))
        self._others = self._bounds.pop(EVERYBODY, None)

    def __bool__(self) -> bool:
        return bool(self._bounds) or self._others is not None

    def evaluate(self, used: Mapping[str, int]) -> list[Use]:
        """The use of each owner with a bound, the fullest first: all owners that the configuration names, and every
        other owner with data. ``used``: bytes by owner.
        """
        found = []
        for owner in self._bounds.keys() | used.keys():
            bound = self._bounds.get(owner, self._others)
            if bound is not None:
                found.append(Use(owner, used.get(owner, 0), bound))
        return sorted(found, key=lambda use: (-use.bytes / use.bytes_max, use.owner))


def parse_quota(text: str) -> tuple[str, int]:
    """Owner and bytes of ``OWNER=SIZE``. Raises ValueError with the reason."""
    # Names of owners may have equals signs of their own.
    owner, equals, size = text.rpartition("=")
    owner = owner.strip()
    if not equals or not owner or len(owner) > NAME_CHARACTERS_MAX:
        raise ValueError(
            f"{quoted(text[:80])} is not of the form OWNER=SIZE, for example analytics=500G"
        )
    return owner, _bytes(text, size.strip())


def _bytes(text: str, size: str) -> int:
    found = _SIZE.fullmatch(size)
    if found is None:
        raise ValueError(
            f"{quoted(text[:80])}: {quoted(size[:20])} is not a size, for example 500G"
        )
    shift = _SHIFTS.get(found[2].upper())
    if shift is None:
        raise ValueError(
            f"{quoted(text[:80])}: {quoted(found[2][:20])} is none of the units K, M, G, T and P, which are powers of "
            "1024"
        )
    count = int(found[1]) << shift
    if not 0 < count < 1 << 63:
        raise ValueError(f"{quoted(text[:80])}: a quota is from 1 byte to 8191P")
    return count


def twice(texts: Iterable[str]) -> str | None:
    """The first owner that more than one text names."""
    seen: set[str] = set()
    for owner, _ in map(parse_quota, texts):
        if owner in seen:
            return owner
        seen.add(owner)
    return None
