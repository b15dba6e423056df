"""What a client may be told about time-outs, bounds and pauses.

The defaults of the time-outs are those of Java's client (addEntryTimeoutSec, readEntryTimeoutSec,
clientConnectTimeoutMillis, speculativeReadTimeout, firstSpeculativeReadLACTimeout). Source:
ClientConfiguration.java.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, TypeVar

from bkbox.base.backoff import JITTER_AROUND, Backoff
from bkbox.base.limits import FRAME_BYTES_MAX
from bkbox.base.words import quoted
from bkbox.client.arguments import option_problems
from bkbox.errors import ConfigError

_T = TypeVar("_T")


_OF_THIS_PROCESS: dict[str, Any] = {}

SECURITY = (
    *("tls", "tls_ca_file", "tls_certificate_file", "tls_key_file", "tls_check_host_name"),
    *("auth", "auth_user", "auth_secret_file"),
)
"""The options that say how a client reaches bookies and who it is."""


def be_known_as(values: Mapping[str, Any]) -> None:
    """What every client of this process does that is not told otherwise, of SECURITY: for commands, which make
    clients in many places and are told once."""
    _OF_THIS_PROCESS.update(values)


def _default(name: str, value: _T) -> Callable[[], _T]:
    return lambda: _OF_THIS_PROCESS.get(name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Options of one client; every ``_s`` is in seconds. Raises ConfigError."""

    protocol: Literal["v2", "v3"] = "v2"
    """Version for adds and reads. Version 2 is faster; what only version 3 has works with both."""

    add_timeout_s: float = 5.0
    """How long one bookie may take over an add."""

    read_timeout_s: float = 5.0
    """How long one bookie may take over a read."""

    connect_timeout_s: float = 10.0
    """How long a connection may take to come about."""

    speculative_read_s: float = 2.0
    """How long a read waits for a bookie before the next one is asked as well."""

    speculative_poll_s: float = 1.5
    """The same for a long poll, which may well be waiting for what is not there."""

    batch_reads: bool = True
    """Whether ``read`` asks for several entries at once where every bookie of the ensemble holds
    every entry."""

    sticky_reads: bool = False
    """Whether a reader asks the same bookie for all entries, as long as that does well."""

    closest_to: str | None = None
    """Host name or address of this process, as the source of racks knows it: reads then ask the closest bookie first,
    one on the same host before one in the same rack before others."""

    quarantine_failures: int = 100
    """So many failures of a bookie within a minute keep it out of new ensembles for ``quarantine_s``; 0: never."""

    quarantine_s: float = 1800.0
    """How long that lasts."""

    explicit_lac_interval_s: float = 0.0
    """How often a writer tells the bookies up to where its entries are acknowledged, if that has
    moved. 0: never; then the last entry of an open ledger is not readable until there is another."""

    window_bytes: int = 8 << 20
    """What one writer holds unacknowledged before ``append`` waits; also, per copy of an entry,
    what it holds for bookies that have not answered yet. Far less than bookies and this process
    take in ``add_timeout_s``, or entries would time out in the queue."""

    read_ahead_bytes: int = 16 << 20
    """What ``read`` asks for ahead of its consumer, each read reckoned at the largest entry seen."""

    tail_wait_s: float = 4.0
    """How long ``tail`` lets a bookie hold the question for the next entry of an open ledger."""

    tail_poll_s: float = 0.1
    """Mean pause of ``tail`` between two questions where bookies do not hold them."""

    backoff_initial_s: float = 0.1
    """Mean pause after the first failure to reach a bookie; doubled after each further one."""

    backoff_max_s: float = 10.0
    """The longest mean pause."""

    topology_script: str | None = None
    """File of the script that says racks (networkTopologyScriptFileName of Java; topology.py)."""

    rack_map: str | None = None
    """File with the racks, in the form in which Pulsar keeps them, or ``znode:`` and the path of the
    znode, ``/bookies`` for Pulsar's own (topology.py)."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    """Largest frame sent or taken; the same as the bookies' (nettyMaxFrameSizeBytes)."""

    tls: Literal["off", "start", "direct"] = field(default_factory=_default("tls", "off"))
    """TLS to the bookies: none, by START_TLS as Java's client asks for it, or from the first byte, which only bkbox's
    bookies take. There is no way back to none: who offers no TLS is not spoken to."""

    tls_ca_file: str | None = field(default_factory=_default("tls_ca_file", None))
    """Certificates that sign those of bookies, PEM; None: those of the system."""

    tls_certificate_file: str | None = field(default_factory=_default("tls_certificate_file", None))
    tls_key_file: str | None = field(default_factory=_default("tls_key_file", None))
    """What the client shows of itself, PEM; None: nothing. The key's mode has to be 0600."""

    tls_check_host_name: bool = field(default_factory=_default("tls_check_host_name", True))
    """Whether a bookie's certificate has to name the host that was asked for."""

    auth: Literal["none", "sasl", "token"] = field(default_factory=_default("auth", "none"))
    """How the client proves who it is: sasl is DIGEST-MD5, for Java's bookies; token is bkbox's own."""

    auth_user: str = field(default_factory=_default("auth_user", ""))
    auth_secret_file: str | None = field(default_factory=_default("auth_secret_file", None))
    """As whom, and the file with the password or token; its mode has to be 0600."""

    def __post_init__(self) -> None:
        problems = option_problems(self, _ABOVE_0)
        if problems:
            raise ConfigError(problems)
        if self.frame_bytes_max not in _FRAME_BYTES:
            low, high = _FRAME_BYTES.start, _FRAME_BYTES.stop - 1
            problems.append(f"frame_bytes_max = {self.frame_bytes_max} is outside {low}..{high}")
        if self.topology_script is not None and self.rack_map is not None:
            problems.append("topology_script and rack_map both say racks: give one of them")
        if self.auth != "none" and not (self.auth_user and self.auth_secret_file):
            problems.append(f"auth = {quoted(self.auth)} needs auth_user and auth_secret_file")
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            problems.append("tls_certificate_file and tls_key_file belong together")
        if problems:
            raise ConfigError(problems)


_ABOVE_0 = (
    *("add_timeout_s", "read_timeout_s", "connect_timeout_s", "window_bytes", "read_ahead_bytes"),
    *("speculative_read_s", "speculative_poll_s", "backoff_initial_s", "backoff_max_s"),
)
"""Options of which 0 would mean that nothing is ever done, or that it is tried without a pause."""

_FRAME_BYTES = range(1 << 8, 1 << 31)
"""Sizes of frames: what the other fields of a request need, and what its length can say."""


class ConnectOptions(TypedDict, total=False):
    """The fields of ClientOptions, as ``connect`` takes them by name."""

    protocol: Literal["v2", "v3"]
    add_timeout_s: float
    read_timeout_s: float
    connect_timeout_s: float
    speculative_read_s: float
    speculative_poll_s: float
    batch_reads: bool
    sticky_reads: bool
    closest_to: str | None
    quarantine_failures: int
    quarantine_s: float
    explicit_lac_interval_s: float
    window_bytes: int
    read_ahead_bytes: int
    tail_wait_s: float
    tail_poll_s: float
    backoff_initial_s: float
    backoff_max_s: float
    topology_script: str | None
    rack_map: str | None
    frame_bytes_max: int
    tls: Literal["off", "start", "direct"]
    tls_ca_file: str | None
    tls_certificate_file: str | None
    tls_key_file: str | None
    tls_check_host_name: bool
    auth: Literal["none", "sasl", "token"]
    auth_user: str
    auth_secret_file: str | None


def new_backoff(options: ClientOptions, rng: random.Random) -> Backoff:
    """The back-off between attempts to reach a bookie."""
    return Backoff(options.backoff_initial_s, options.backoff_max_s, rng, JITTER_AROUND)
