"""Authorisation of the requests of one connection whose client is authenticated.

Roles are checked per request. Fast-path adds and reads are exempt where the client may add and read and has no rate
limit: the connection gets its fast paths once (``fast_paths``).
"""

from __future__ import annotations

from collections.abc import Callable

from bkbox.base.logs.refusals import Refusals
from bkbox.frontend.access.ledger_verification import LedgerVerification
from bkbox.frontend.loop.connection import FAST_ADDS, FAST_READS, FAST_RECOVERIES
from bkbox.security.rates import Bucket
from bkbox.security.roles import Grant, Need
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code


class Authorizer:
    """Authorises one client. ``name``: its proved identity; ``plugin``: how it was proved; ``peer``: its address;
    ``counts_as``: the key under which its requests are rate limited; ``vouching``: None where ledgers may be created
    without a query to the metadata store.
    """

    __slots__ = (
        "_now_s",
        "_refusals",
        "bucket",
        "counts_as",
        "grant",
        "name",
        "peer",
        "plugin",
        "vouching",
    )

    def __init__(
        self,
        name: str,
        plugin: str,
        peer: str,
        grant: Grant,
        bucket: Bucket | None,
        refusals: Refusals,
        monotonic_s: Callable[[], float],
        vouching: LedgerVerification | None = None,
    ) -> None:
        self.name = name
        self.counts_as = ""
        self.plugin = plugin
        self.peer = peer
        self.grant = grant
        self.bucket = bucket
        self._refusals = refusals
        self._now_s = monotonic_s
        self.vouching = vouching

    @property
    def identity(self) -> str:
        """The identity that roles are granted to; see bkbox/security/roles.py."""
        return f"{self.plugin}/{self.name}"

    @property
    def fast_paths(self) -> int:
        """The allowed fast paths, FAST_ADDS, FAST_READS and FAST_RECOVERIES, for ``Connection.allows``."""
        if self.bucket is not None:
            return 0
        needs = self.grant.needs
        return (
            FAST_ADDS * (Need.ADD in needs)
            | FAST_READS * (Need.READ in needs)
            | FAST_RECOVERIES * (Need.RECOVER in needs)
        )

    def may_create(self, connection: int, ledger: int, key: bytes | None) -> Code | None:
        """EOK if a request may create this ledger, else the code to refuse it with; None: the request must wait."""
        if self.vouching is None:
            return Code.EOK
        code = self.vouching.verdict(connection, ledger, key)
        if code in (Code.ENOLEDGER, Code.EUA):
            why = "that is in no metadata" if code is Code.ENOLEDGER else "with another password"
            self._refusals.note(self.identity, self.peer, f"to make a ledger {why}")
        return code

    def refusal(self, need: Need, *, paid: bool = False) -> Code | None:
        """The code to refuse a request with; None if it may be carried out. ``paid``: its token is taken already."""
        if need not in self.grant.needs:
            self._refusals.note(self.identity, self.peer, str(need.name).lower())
            return Code.EUA
        if paid or self.bucket is None:
            return None
        if not self.bucket.try_acquire(self._now_s()):
            return Code.ETOOMANYREQUESTS
        return None


def key_of_v2(body: memoryview) -> bytes | None:
    """The ledger key in a version 2 request; None if it has none."""
    return getattr(v2.decode_request(body), "master_key", None)


def need_of_v2(header: v2.Header) -> Need:
    """The permission that a version 2 request needs, other than AUTH."""
    if header.opcode == v2.OP_ADD:
        return Need.RECOVER if header.flags & v2.FLAG_RECOVERY_ADD else Need.ADD
    return Need.RECOVER if header.flags & v2.FLAG_DO_FENCING else Need.READ


def need_of_v3(request: v3.LedgerRequest | v3.BookieInfoRequest) -> Need:
    """The permission that a version 3 request needs."""
    match request:
        case v3.AddRequest():
            return Need.RECOVER if request.recovery else Need.ADD
        case v3.WriteLacRequest() | v3.ForceRequest():
            return Need.ADD
        case v3.ReadRequest():
            return Need.RECOVER if request.fencing else Need.READ
        case _:
            return Need.READ
