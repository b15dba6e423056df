"""Limits on connections, in all and per address. A connection over a limit is closed at once.

Pure. Addresses of IPv6 count by their network of 64 bits: one host has as many of those as it likes.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from typing import Protocol

_IPV4 = 1 << 32
_ZERO = 1 << 33
"""Bits of networks of IPv6 that no host is in."""


class AllConnections(Protocol):
    """The connections of all front-ends of a bookie, each of which sets its own."""

    def set_connections(self, own: int) -> None: ...

    def connections(self) -> int: ...

    def set_of_peer(self, peer: str, own: int) -> None: ...

    def of_peer(self, peer: str) -> int: ...


class Peers:
    """Counts connections. ``total_max``: of this front-end; ``all_max``: of all; ``per_peer_max``: 0 for no bound.
    ``shared``: the counts of all front-ends, None for the only one."""

    def __init__(self) -> None:
        self.total_max = 1
        self.all_max = 1
        self.per_peer_max = 0
        self.total = 0
        self.rejected = 0
        self.shared: AllConnections | None = None
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
        if self.shared is not None and not self._admit_shared(self.shared, peer):
            self.leave(host)
            self.rejected += 1
            return False
        return True

    def _admit_shared(self, shared: AllConnections, peer: str) -> bool:
        """Count it for the others, and then compare: two front-ends never both give the last place."""
        shared.set_connections(self.total)
        shared.set_of_peer(peer, self._by_peer[peer])
        if shared.connections() > self.all_max:
            return False
        return not 0 < self.per_peer_max < shared.of_peer(peer)

    def leave(self, host: str) -> None:
        """Count an admitted connection as closed."""
        peer = peer_of(host)
        self.total -= 1
        self._by_peer[peer] -= 1
        if self.shared is not None:
            self.shared.set_connections(self.total)
            self.shared.set_of_peer(peer, self._by_peer[peer])
        if not self._by_peer[peer]:
            del self._by_peer[peer]


def peer_of(host: str) -> str:
    """The key under which an address is counted."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    mapped = address.ipv4_mapped
    return str(mapped) if mapped is not None else address.packed[:8].hex()


def key_of_peer(peer: str) -> int:
    """A peer as a number of 64 bits with a sign, not 0, and different for each."""
    if "." in peer:
        return _IPV4 | int(ipaddress.IPv4Address(peer))
    return int.from_bytes(bytes.fromhex(peer), "big", signed=True) or _ZERO
