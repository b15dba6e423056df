"""Paths in a metadata tree: ledgers in the four layouts, under-replicated ledgers, id generation.

===================  ==============================  =========================================
layout               path of a ledger below the root  reads back
===================  ==============================  =========================================
flat                 L + ten digits                  the same form
legacyhierarchical   ten digits, split 2/4/4         three parts
hierarchical         ten digits below 2**31 - 1,     three parts or five
                     else nineteen, 3/4/4/4/4
longhierarchical     nineteen digits                 three parts or five
===================  ==============================  =========================================

The last part of a split id begins with L. The legacy layout loses digits from 10**10 on. Source:
StringUtils.java, AbstractZkLedgerManager.java, HierarchicalLedgerManager.java,
ZkLedgerIdGenerator.java, LongZkLedgerIdGenerator.java.
"""

from __future__ import annotations

import re
from enum import Enum

from bkbox.base.ids import MAX_ID, LedgerId
from bkbox.errors import EncodingError

SHORT_ID_END = 2**31 - 1
"""Ids below it have short paths in the hierarchical layout and come from the short id generator."""

_SPECIAL = frozenset(
    {
        "available",
        "cookies",
        "LAYOUT",
        "INSTANCEID",
        "underreplication",
        "idgen",
        "idgen-long",
    }
)


class PathLayout(Enum):
    """The layouts of ledger ids as paths; the values are the names used in service URIs."""

    FLAT = "flat"
    LEGACY_HIERARCHICAL = "legacyhierarchical"
    HIERARCHICAL = "hierarchical"
    LONG_HIERARCHICAL = "longhierarchical"

    @property
    def factory_class(self) -> str:
        """The class in the LAYOUT node."""
        return f"org.apache.bookkeeper.meta.{_FACTORIES[self]}LedgerManagerFactory"


_FACTORIES = {
    PathLayout.FLAT: "Flat",
    PathLayout.LEGACY_HIERARCHICAL: "LegacyHierarchical",
    PathLayout.HIERARCHICAL: "Hierarchical",
    PathLayout.LONG_HIERARCHICAL: "LongHierarchical",
}
_PARENTS = {
    PathLayout.FLAT: re.compile("L[0-9]{10}"),
    PathLayout.LEGACY_HIERARCHICAL: re.compile("[0-9]{2}"),
    PathLayout.HIERARCHICAL: re.compile("[0-9]{2,3}"),
    PathLayout.LONG_HIERARCHICAL: re.compile("[0-9]{3}"),
}


# ---- ledgers ----------------------------------------------------------------------------------


def ledger_path(root: str, layout: PathLayout, ledger: int) -> str:
    """The path of a ledger's metadata."""
    if layout is PathLayout.FLAT:
        return f"{root}/L{ledger:010d}"
    short = ledger < SHORT_ID_END
    if layout is PathLayout.LEGACY_HIERARCHICAL or (layout is PathLayout.HIERARCHICAL and short):
        digits = f"{ledger:010d}"
        return f"{root}/{digits[:2]}/{digits[2:6]}/L{digits[6:10]}"
    digits = f"{ledger:019d}"
    groups = [digits[:3], *(digits[at : at + 4] for at in (3, 7, 11))]
    return f"{root}/{'/'.join(groups)}/L{digits[15:]}"


def ledger_of_path(root: str, layout: PathLayout, path: str) -> LedgerId:
    """The ledger whose metadata has this path. Raises EncodingError."""
    if layout is PathLayout.FLAT:
        prefix = f"{root}/L"
        digits = path[len(prefix) :] if path.startswith(prefix) else ""
    else:
        parts = path.removeprefix(f"{root}/").rstrip("/").split("/")
        lengths = (3,) if layout is PathLayout.LEGACY_HIERARCHICAL else (3, 5)
        known = path.startswith(f"{root}/") and len(parts) in lengths
        # The first character of the last part is dropped whatever it is, as Java's reader does.
        digits = "".join((*parts[:-1], parts[-1][1:])) if known else ""
    if not re.fullmatch("[0-9]{1,32}", digits) or int(digits) > MAX_ID:
        raise EncodingError(f"{path} is not the path of a ledger in the layout {layout.value}")
    return LedgerId(int(digits))


def is_ledger_parent(layout: PathLayout, name: str) -> bool:
    """True if a child of the root begins the path of a ledger; long flat ids are not recognised."""
    return _PARENTS[layout].fullmatch(name) is not None


def is_special(name: str) -> bool:
    """True if a child of the root belongs to the cluster itself."""
    return name in _SPECIAL or name.startswith("ID-")


# ---- under-replicated ledgers -----------------------------------------------------------------


def underreplicated_path(root: str, ledger: int) -> str:
    """The path of a ledger's mark as under-replicated."""
    digits = f"{ledger:016x}"
    groups = "/".join(digits[at : at + 4] for at in (0, 4, 8, 12))
    return f"{root}/underreplication/ledgers/{groups}/urL{ledger:010d}"


def underreplicated_lock_path(root: str, ledger: int) -> str:
    """The path of the lock that a worker on this ledger holds."""
    return f"{root}/underreplication/locks/urL{ledger:010d}"


def ledger_of_underreplicated(path: str) -> LedgerId:
    """The ledger of a mark's or a lock's path. Raises EncodingError."""
    match = re.search("/urL([0-9]{1,32})$", path)
    if match is None or int(match[1]) > MAX_ID:
        raise EncodingError(f"{path} is not the path of an under-replicated ledger")
    return LedgerId(int(match[1]))


# ---- id generation ----------------------------------------------------------------------------


def id_prefix(root: str, layout: PathLayout) -> str:
    """Prefix of the sequential nodes that give ids of 31 bits."""
    return f"{root}/ID-" if layout is PathLayout.FLAT else f"{root}/idgen/ID-"


def long_id_prefix(root: str, high: int) -> str:
    """Prefix of the sequential nodes that give ids with these upper bits (1 or more)."""
    return f"{root}/idgen-long/HOB-{high:010d}/ID-"


def generated_id(created: str) -> LedgerId | None:
    """The id of a created sequential node.

    None: the generator overflowed and the next one has to be used. Raises EncodingError.
    """
    match = re.search("(?:/HOB-([0-9]+))?/ID-(-?[0-9]+)$", created)
    if match is None or max(map(len, match.groups("0"))) > 32:
        raise EncodingError(f"{created} is not a node of the id generator")
    low = int(match[2])
    if not 0 <= low < SHORT_ID_END:
        return None
    ledger = (int(match[1] or "0") << 32) + low
    if ledger > MAX_ID:
        raise EncodingError(f"{created} stands for an id that no ledger can have")
    return LedgerId(ledger)
