"""Limits on connections, in all and per address. A connection over a limit is closed at once.

Pure. Addresses of IPv6 count by their network of 64 bits: one host has as many of those as it likes.
"""

from __future__ import annotations

import ipaddress
from collections import Counter


class Peers:
    """Counts connections. ``per_peer_max``: 0 for no bound."""

    def __init__(self) -> None:
        self.total_max = 1
        self.per_peer_max = 0
        self.total = 0
        self.rejected = 0
        self._by_peer: Counter[str] = Counter()

    def admit(self, host: str) -> bool:
        """Count one connection more; False if it is over a limit."""
        peer = peer_of(host)
        of_peer = self._by_peer[peer]
        if self.total >= self.total_max or 0 < self.per_peer_max <= of_peer:
            if not of_peer:
                del self._by_peer[peer]
            self.rejected += 1
            return False
        self._by_peer[peer] = of_peer + 1
        self.total += 1
        return True

    def leave(self, host: str) -> None:
        """Count an admitted connection as closed."""
        peer = peer_of(host)
        self.total -= 1
        self._by_peer[peer] -= 1
        if not self._by_peer[peer]:
            del self._by_peer[peer]


def peer_of(host: str) -> str:
    """The key under which an address is counted."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    mapped = address.ipv4_mapped
    return str(mapped) if mapped is not None else address.packed[:8].hex()
