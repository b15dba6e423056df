"""The sessions of a front-end: who is let in, after a handshake where the access policy asks for one, what each client
may do, and how a session ends.

Connections over a limit are closed. Those of a host that has sent what is no frame wait (protocol_error_throttle.py).
A new access policy holds for open sessions too: what a client has proved is judged anew.
"""

from __future__ import annotations

import itertools
import logging
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bkbox.base.host.descriptors import allow
from bkbox.base.limits import FRONTEND_DESCRIPTORS
from bkbox.base.logs import trace
from bkbox.base.logs.rate_limited import RateLimited
from bkbox.base.logs.refusals import Refusals
from bkbox.base.text import quoted
from bkbox.errors import AuthenticationError, FrameError
from bkbox.frontend.access.access_policy import AccessPolicy
from bkbox.frontend.access.authorization import Authorizer
from bkbox.frontend.access.ledger_verification import LedgerVerification
from bkbox.frontend.client_session import ClientSession, SlotRouter
from bkbox.frontend.loop.connection import Connection
from bkbox.frontend.loop.event_loop import EventLoop
from bkbox.frontend.overload.connection_cpu_budget import ConnectionCpuBudget
from bkbox.frontend.overload.protocol_error_throttle import ProtocolErrorThrottle
from bkbox.frontend.shared_counts import SharedCounts
from bkbox.ipc.link import connections_of
from bkbox.security.connection_limits import Peers
from bkbox.security.rates import Buckets
from bkbox.security.roles import FREE

if TYPE_CHECKING:
    from bkbox.frontend.access.handshake_pool import HandshakePool, UnauthenticatedConnection

log = logging.getLogger(__name__)


class Sessions:
    """The open sessions, ``by_number`` of their connection. ``schedule_timers``: ``tick`` is due by then;
    ``end``: ends a session, for this reason, and calls ``remove``."""

    def __init__(
        self,
        loop: EventLoop,
        router: SlotRouter,
        verification: LedgerVerification,
        cpu_budget: ConnectionCpuBudget,
        limited_log: RateLimited,
        schedule_timers: Callable[[float], None],
        end: Callable[[Connection, Exception], None],
    ) -> None:
        self._loop = loop
        self._router = router
        self._verification = verification
        self._cpu_budget = cpu_budget
        self._limited_log = limited_log
        self._schedule_timers = schedule_timers
        self._end = end
        self.by_number: dict[int, Connection] = {}
        self.frame_bytes_max = self.inflight_bytes_max = 0
        """Bounds of sessions that are let in from now on."""
        self._numbers = itertools.count(1)
        self._connections = connections_of(0)
        self._frontends = 1
        self._peers = Peers()
        self._policy = AccessPolicy()
        self._refusals = Refusals(time.monotonic)
        self._buckets = Buckets()
        self._error_throttle: ProtocolErrorThrottle[tuple[socket.socket, str, str]] = (
            ProtocolErrorThrottle(time.monotonic)
        )
        self._handshake_pool: HandshakePool | None = None
        self._handshake_timeout_s = 10.0

    def join(self, number: int, shared: SharedCounts, frontends: int) -> None:
        """The front-end is one of several: its connections have other numbers, and bounds hold over all of them."""
        self._connections = connections_of(number)
        self._peers.shared = self._buckets.times = shared
        self._frontends = frontends

    def clients(self) -> list[ClientSession]:
        return [each for each in self.by_number.values() if isinstance(each, ClientSession)]

    def tick(self) -> None:
        if self._handshake_pool is not None:
            self._handshake_pool.tick()
        for delayed in self._error_throttle.pop_expired():
            self._receive(*delayed)

    def wait_s(self) -> float | None:
        """Seconds until ``tick`` is due; None: not by itself."""
        pool = self._handshake_pool
        waits = (None if pool is None else pool.wait_s(), self._error_throttle.wait_s())
        return min((wait for wait in waits if wait is not None), default=None)

    def apply_limits(self, values: Mapping[str, Any]) -> None:
        """Applies the limits on connections and handshakes."""
        descriptors = allow(values["connections_max"] + FRONTEND_DESCRIPTORS)
        allowed = max(descriptors - FRONTEND_DESCRIPTORS, 1)
        self._peers.total_max = min(values["connections_max"], allowed)
        self._peers.all_max = values["connections_max"]
        self._peers.per_peer_max = values["connections_per_peer_max"]
        self._handshake_timeout_s = values["handshake_timeout_s"]
        if self._handshake_pool is not None:
            self._handshake_pool.timeout_s = self._handshake_timeout_s

    def stats(self) -> dict[str, int]:
        """``rejected``: connections over a connection limit. ``handshaking``: connections not authenticated yet.
        ``unauthorised``: requests and connections refused for lack of permission.
        """
        return {
            "connections": len(self.by_number),
            "rejected": self._peers.rejected,
            "handshaking": 0 if self._handshake_pool is None else len(self._handshake_pool),
            "unauthorised": self._refusals.count,
        }

    def close(self) -> None:
        if self._handshake_pool is not None:
            self._handshake_pool.close()
        for sock, _, _ in self._error_throttle.clear():
            sock.close()
        for session in self.by_number.values():
            session.close()

    # ---- a session begins ---------------------------------------------------------------------------

    def admit(self, sock: socket.socket, peer: str, host: str) -> None:
        """Takes over a connection that was accepted."""
        if not self._peers.admit(host):
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._error_throttle.is_throttled(host):
            self._error_throttle.delay((sock, peer, host))
            self._schedule_timers(0.0)
        else:
            self._receive(sock, peer, host)

    def _receive(self, sock: socket.socket, peer: str, host: str) -> None:
        if self._policy.is_open:
            self._let_in(sock, peer, host, None)
        else:
            self._ensure_handshake_pool().receive(sock, peer, host, self._policy)

    def _let_in(
        self, sock: socket.socket, peer: str, host: str, authorizer: Authorizer | None
    ) -> ClientSession:
        session = ClientSession(
            self._next_number(),
            sock,
            peer,
            self._loop.poll,
            self._loop.common,
            self._router,
            self.frame_bytes_max,
            self.inflight_bytes_max,
            host,
            authorizer,
        )
        if not self.by_number:
            self._schedule_timers(0.0)
        self.by_number[session.number] = session
        self._loop.streams[sock.fileno()] = session
        if log.isEnabledFor(logging.DEBUG):
            of_it = {"trace": trace.name(session.number)}
            log.debug("connection %s is accepted", session.peer, extra=of_it)
        return session

    def _next_number(self) -> int:
        """A number that no open connection of any front-end has."""
        connections = self._connections
        while True:
            number = connections[next(self._numbers) % len(connections)]
            if number not in self.by_number:
                return number

    # ---- the handshake ------------------------------------------------------------------------------

    def _ensure_handshake_pool(self) -> HandshakePool:
        if self._handshake_pool is None:
            from bkbox.frontend.access.handshake_pool import (
                HandshakePool,  # loads OpenSSL, which few installations need
            )

            self._handshake_pool = HandshakePool(
                self._loop,
                time.monotonic,
                self._on_authenticated,
                self._on_unauthenticated_closed,
                self._refusals,
                self._cpu_budget,
                self._schedule_timers,
                self._frontends,
            )
            self._handshake_pool.timeout_s = self._handshake_timeout_s
        return self._handshake_pool

    def _on_authenticated(self, connection: UnauthenticatedConnection) -> None:
        """Lets in a connection that is authenticated, or need not be."""
        authorizer, before = None, connection.policy
        if connection.name is not None:
            authorizer = Authorizer(
                connection.name,
                connection.plugin,
                connection.peer,
                FREE,
                None,
                self._refusals,
                time.monotonic,
            )
            if not self._policy.still_admits(connection.plugin, connection.name, before):
                return self._reject_expired(connection)
            self._grant(authorizer)
        elif self._policy.plugins or not self._still_signed(before):
            return self._reject_expired(connection)
        session = self._let_in(connection.sock, connection.peer, connection.host, authorizer)
        try:
            session.begin_with(connection.unread, connection.tls)
        except OSError as error:  # no buffer space for what it begins with
            self._end(session, error)

    def _reject_expired(self, connection: UnauthenticatedConnection) -> None:
        """Closes a connection whose proof was sufficient when it came, and is not any more."""
        connection.sock.close()
        self._on_unauthenticated_closed(
            connection, TimeoutError("what it has proved is not enough any more")
        )

    def _on_unauthenticated_closed(
        self, connection: UnauthenticatedConnection, error: Exception
    ) -> None:
        self._peers.leave(connection.host)
        if isinstance(error, FrameError | AuthenticationError):
            self._error_throttle.record_error(connection.host)
        if not isinstance(error, EOFError):
            kind = f"{type(error).__name__} in the handshake"
            details = connection.peer, error
            self._limited_log.log(logging.INFO, kind, "connection %s: %s; not let in", *details)

    # ---- the access policy --------------------------------------------------------------------------

    def apply_policy(self, policy: AccessPolicy) -> None:
        """Applies a new access policy. Open sessions get their new permissions, or are closed."""
        before, self._policy = self._policy, policy
        for session in self.clients():
            authorizer = session.authorizer
            if authorizer is None:
                if policy.plugins:
                    self._end(session, TimeoutError("clients have to authenticate from now on"))
                elif not self._still_signed(before):
                    self._end(session, TimeoutError("what signed its certificate counts no more"))
            elif not policy.still_admits(authorizer.plugin, authorizer.name, before):
                text = f"what {quoted(authorizer.identity)} has proved is not enough any more"
                self._end(session, TimeoutError(text))
            else:
                self._refresh(session, authorizer)

    def _still_signed(self, before: AccessPolicy) -> bool:
        """True if a client that needed no name can still show the certificate that it needed."""
        now = self._policy
        return not now.every_client_is_signed or now.trusts_signers_of(before)

    def _refresh(self, session: ClientSession, authorizer: Authorizer) -> None:
        """Refreshes a session's permissions. Its rate-limit bucket is released and acquired anew, as the rate may have
        changed."""
        self._give_back(authorizer)
        self._grant(authorizer)
        session.refresh_permissions()

    def _grant(self, authorizer: Authorizer) -> None:
        grants = self._policy.grants
        authorizer.vouching = self._verification if self._policy.vouches else None
        authorizer.grant = grants.of(authorizer.identity)
        authorizer.counts_as = grants.counts_as(authorizer.identity)
        rate = authorizer.grant.requests_per_second
        authorizer.bucket = self._buckets.open(authorizer.counts_as, rate) if rate else None

    def _give_back(self, authorizer: Authorizer) -> None:
        if authorizer.bucket is not None:
            self._buckets.close(authorizer.counts_as)

    # ---- a session ends -----------------------------------------------------------------------------

    def remove(self, session: Connection, error: Exception) -> None:
        """Closes a session, for this reason, and gives back what it had."""
        assert isinstance(session, ClientSession)
        if isinstance(error, FrameError | ConnectionAbortedError | TimeoutError):
            self._limited_log.log(
                logging.WARNING,
                type(error).__name__,
                "connection %s: %s; closed",
                *(session.peer, error),
                extra={"trace": trace.name(session.number)},
            )
        if isinstance(error, FrameError):
            self._error_throttle.record_error(session.host)
        self._peers.leave(session.host)
        if session.authorizer is not None:
            self._give_back(session.authorizer)
            self._verification.forget(session.number)
        del self._loop.streams[session.sock.fileno()]
        del self.by_number[session.number]
        session.close()
