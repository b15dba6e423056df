"""The items of which lists in messages are made: fixed-size records in a payload, in pages of at most PAGE_ITEMS."""

from __future__ import annotations

import struct

PAGE_ITEMS = 2_048
"""Items in one page of ledgers, marks or ranges."""


LEDGER_ID_ITEM = struct.Struct("=Q")


LEDGER_ITEM = struct.Struct("=QB")
"""One ledger in a page: id, flags."""


MARK_ITEM = struct.Struct("=QBB20s")
"""One mark of phase one: ledger id, flags to set, 1 if a key follows, master key."""


RANGE_ITEM = struct.Struct("=QQ")
"""One range of entry ids, both ends included."""


DELETED_ITEM = struct.Struct("=QBQ")
"""One deleted ledger: id, 1 if its entries are removed, time of deletion in ms since 1970."""


PLACEMENT_ITEM = struct.Struct("=Qi")
"""A ledger and its disk, as an index."""


REGION_ITEM = struct.Struct("=IQQ")
"""A region of a segment: its id, start, end."""


BYTES_ITEM = struct.Struct("=QQ")
"""The usage of a ledger on a disk: its id, bytes."""


ENTRY_ITEM = struct.Struct("=QQ")
"""One entry: ledger, id."""


SEGMENT_ITEM = struct.Struct("=IQQ")
"""One segment: id, bytes of its file, bytes of its live entries."""


FENCED = 1

LIMBO = 2

ACTIVE = 4
