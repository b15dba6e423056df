"""Dispatches each request of a connection: responds at once, or names the disk that has to carry it out.

Both protocol versions share one port and are distinguished as BookKeeper's bookie does (BookieProtoEncoding.java): a
connection is version 3 until the first body that does not decode as such, and version 2 from then on, for good. A
first byte below 8 decides at once. A version 3 message without the part of its operation closes the connection
(FrameError), as does whatever version 2 cannot decode.

Handled here: authentication (it is over, or off: the plugin AuthDisabledPlugin accepts), START_TLS (too late, or off:
refused), operations that exist in name only, unknown versions, requests that the client is not permitted, the size of
the bookie, and every request that has no disk.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, Protocol

from bkbox.base.limits import DEFERRED_LEDGERS_MAX
from bkbox.errors import DiskError, EncodingError
from bkbox.frontend.access.authorization import Authorizer, key_of_v2, need_of_v2, need_of_v3
from bkbox.frontend.disk_link import DiskLink
from bkbox.frontend.ledger_directory import ABSENT, Purpose
from bkbox.storage.files import Space
from bkbox.wire import v2, v3
from bkbox.wire.auth import AUTH_DISABLED_PLUGIN, AuthMessage
from bkbox.wire.codes import Code

_AUTH_DISABLED = AuthMessage(AUTH_DISABLED_PLUGIN, b"")


class Router(Protocol):
    """The interface of the front-end that a session uses."""

    def route(self, ledger: int, purpose: Purpose, connection: int) -> DiskLink | Code | None:
        """The link to send a request of a connection to, or the code to refuse it with; None: not yet."""

    def space(self) -> Space:
        """Space on the bookie's disks, in bytes. Raises DiskError."""


class RoutedRequest(NamedTuple):
    """A request and the link it goes to.

    ``costs_request_bytes``: its cost is its own size, not that of its response. ``poll``: for a long poll, its
    transaction id and the response to send if the worker dies.
    """

    link: DiskLink
    costs_request_bytes: bool
    poll: tuple[int, bytes] | None = None


class RequestRouter:
    """The requests of one connection, which has this ``number``. ``tries_v3``: it is still regarded as version 3.
    ``authorizer``: None where every request is permitted."""

    def __init__(
        self, router: Router, authorizer: Authorizer | None = None, number: int = 0
    ) -> None:
        self._router = router
        self._authorizer = authorizer
        self._number = number
        self.tries_v3 = True
        self.paid = False
        """The next request is one that had to wait: its token is taken already."""
        self._deferred: OrderedDict[int, DiskLink] = OrderedDict()

    def dispatch(self, body: memoryview) -> RoutedRequest | bytes | None:
        """The disk that a request goes to, or its response where no disk is needed. None: it has to wait, and nothing
        was done with it.

        Raises FrameError: the connection must be closed.
        """
        found = self._dispatch(body)
        self.paid = found is None
        return found

    def _dispatch(self, body: memoryview) -> RoutedRequest | bytes | None:
        if self.tries_v3:
            if body[0] >= v3.FIRST_BYTE_MIN:
                try:
                    request = v3.decode_request(body)
                except EncodingError:
                    self.tries_v3 = False
                else:
                    return self._dispatch_v3(request)
            self.tries_v3 = False
        return self._dispatch_v2(body)

    # ---- version 2 ----------------------------------------------------------------------------------

    def _dispatch_v2(self, body: memoryview) -> RoutedRequest | bytes | None:
        header = v2.peek_request(body)
        if isinstance(header, v2.BadVersion):
            return v2.encode_response(v2.bad_version_response(header))
        if header.opcode == v2.OP_AUTH:
            v2.decode_request(body)
            return v2.encode_response(v2.AuthResponse(header.version, _AUTH_DISABLED))
        if self._authorizer is not None:
            refusal = self._authorizer.refusal(need_of_v2(header), paid=self.paid)
            if refusal is not None:
                return v2.refuse(body, refusal)
        is_add = header.opcode == v2.OP_ADD
        if is_add:
            recovers = header.flags & v2.FLAG_RECOVERY_ADD
            purpose = Purpose.RECOVER if recovers else Purpose.WRITE
        else:
            purpose = Purpose.RECOVER if header.flags & v2.FLAG_DO_FENCING else Purpose.READ
        if self._authorizer is not None and purpose not in ABSENT:
            code = self._authorizer.may_create(self._number, header.ledger_id, key_of_v2(body))
            if code is not Code.EOK:
                return None if code is None else v2.refuse(body, code)
        target = self._router.route(header.ledger_id, purpose, self._number)
        if target is None:
            return None
        return (
            v2.refuse(body, target) if isinstance(target, Code) else RoutedRequest(target, is_add)
        )

    # ---- version 3 ----------------------------------------------------------------------------------

    def _dispatch_v3(self, request: v3.Request) -> RoutedRequest | bytes | None:
        if isinstance(request, v3.AuthRequest):
            response = v3.AuthResponse(request.header, Code.EOK, _AUTH_DISABLED)
            return v3.encode_response(response)
        if isinstance(request, v3.StartTlsRequest | v3.Unserved):
            return _refuse(request, Code.EBADREQ)
        if request.header.version != v3.CURRENT_VERSION:
            return _refuse(request, Code.EBADVERSION)
        if self._authorizer is not None:
            refusal = self._authorizer.refusal(need_of_v3(request), paid=self.paid)
            if refusal is not None:
                return _refuse(request, refusal)
        if isinstance(request, v3.BookieInfoRequest):
            return self._info(request)
        purpose = _purpose(request)
        if self._authorizer is not None and purpose not in ABSENT:
            key = getattr(request, "master_key", None)
            code = self._authorizer.may_create(self._number, request.ledger_id, key)
            if code is not Code.EOK:
                return None if code is None else _refuse(request, code)
        target = self._router.route(request.ledger_id, purpose, self._number)
        if target is None:
            return None
        if isinstance(target, Code):
            return _refuse(request, target)
        if isinstance(request, v3.AddRequest) and request.deferred_sync:
            self._defer(request.ledger_id, target)
        elif isinstance(request, v3.ForceRequest) and self._lost_deferred(request, target):
            return _refuse(request, Code.EIO)
        poll = None
        if isinstance(request, v3.ReadRequest) and request.long_poll:
            poll = request.header.txn_id, _refuse(request, Code.EIO)
        costs_request_bytes = isinstance(
            request, v3.AddRequest | v3.WriteLacRequest | v3.ForceRequest
        )
        return RoutedRequest(target, costs_request_bytes, poll)

    def _info(self, request: v3.BookieInfoRequest) -> bytes:
        try:
            space = self._router.space()
            free, total = space.free, space.total
        except DiskError:
            return _refuse(request, Code.EIO)
        response = v3.BookieInfoResponse(
            request.header.txn_id,
            Code.EOK,
            total if request.wants_total else None,
            free if request.wants_free else None,
        )
        return v3.encode_response(response)

    # A worker that restarts after its disk failed may have lost adds that were acknowledged before a sync, and would
    # force the rest without knowing of the loss. So a force covers only adds that went to the same worker.

    def _defer(self, ledger: int, link: DiskLink) -> None:
        """Remembers the first worker that got a deferred-sync add of this ledger over this connection."""
        self._deferred.setdefault(ledger, link)
        self._deferred.move_to_end(ledger)
        if len(self._deferred) > DEFERRED_LEDGERS_MAX:
            self._deferred.popitem(last=False)

    def moved(self, ledger: int, before: DiskLink, after: DiskLink) -> None:
        """The ledger has migrated; all that its first worker had accepted is durable on the target."""
        if self._deferred.get(ledger) is before:
            self._deferred[ledger] = after

    def _lost_deferred(self, force: v3.ForceRequest, link: DiskLink) -> bool:
        return self._deferred.get(force.ledger_id, link) is not link


def _refuse(request: v3.Request, code: Code) -> bytes:
    return v3.encode_response(v3.refusal(request, code))


def _purpose(request: v3.LedgerRequest) -> Purpose:
    match request:
        case v3.AddRequest():
            return Purpose.RECOVER if request.recovery else Purpose.WRITE
        case v3.WriteLacRequest():
            return Purpose.WRITE_LAC
        case v3.ReadRequest():
            return Purpose.RECOVER if request.fencing else Purpose.READ
        case v3.ReadLacRequest():
            return Purpose.READ_LAC
        case v3.ForceRequest():
            return Purpose.FORCE
        case _:
            return Purpose.READ
