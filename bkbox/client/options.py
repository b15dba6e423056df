"""A client's options: time-outs, bounds, pauses, placement and security.

The defaults of the time-outs are those of Java's client (addEntryTimeoutSec, readEntryTimeoutSec,
clientConnectTimeoutMillis, speculativeReadTimeout, firstSpeculativeReadLACTimeout). Source: ClientConfiguration.java.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, TypeVar

from bkbox.base.backoff import JITTER_AROUND, Backoff
from bkbox.base.limits import FRAME_BYTES_MAX
from bkbox.base.text import quoted
from bkbox.client.arguments import option_problems
from bkbox.errors import ConfigError

_T = TypeVar("_T")


_OF_THIS_PROCESS: dict[str, Any] = {}

SECURITY = (
    *("tls", "tls_ca_file", "tls_certificate_file", "tls_key_file", "tls_check_host_name"),
    *("auth", "auth_user", "auth_secret_file"),
)
"""The options of reaching bookies and of authentication."""


def set_process_defaults(values: Mapping[str, Any]) -> None:
    """Sets process-wide defaults for the options in SECURITY: for commands, which make clients in many places and are
    configured once.
    """
    _OF_THIS_PROCESS.update(values)


def _default(name: str, value: _T) -> Callable[[], _T]:
    return lambda: _OF_THIS_PROCESS.get(name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Options of one client; every ``_s`` is in seconds. Raises ConfigError."""

    protocol: Literal["v2", "v3"] = "v2"
    """Version for adds and reads. Version 2 is faster; features that only version 3 has work with both."""

    add_timeout_s: float = 5.0
    """Time-out of an add, for each bookie."""

    read_timeout_s: float = 5.0
    """Time-out of a read, for each bookie."""

    connect_timeout_s: float = 10.0
    """Time-out of opening a connection."""

    speculative_read_s: float = 2.0
    """How long a read waits for a bookie before the next one is asked as well."""

    speculative_poll_s: float = 1.5
    """The same for a long poll, which may well be waiting for an entry that does not exist."""

    batch_reads: bool = True
    """If true, ``read`` uses batch reads where every bookie of the ensemble holds every entry."""

    sticky_reads: bool = False
    """If true, a reader asks the same bookie for all entries while that bookie is healthy."""

    closest_to: str | None = None
    """Host name or address of this process, as the source of racks knows it. Reads then ask the closest bookie first:
    the same host, then the same rack, then others.
    """

    quarantine_failures: int = 100
    """Failures of a bookie within a minute that keep it out of new ensembles for ``quarantine_s``; 0: never."""

    quarantine_s: float = 1800.0
    """Duration of a quarantine."""

    explicit_lac_interval_s: float = 0.0
    """How often a writer sends the bookies its LAC, if it has changed. 0: never; then the last entry of an open
    ledger is not readable until there is another.
    """

    window_bytes: int = 8 << 20
    """Unacknowledged bytes of one writer from which ``append`` waits; also, per copy of an entry, the bytes that
    bookies have not answered. It must be far less than bookies and this process handle in ``add_timeout_s``, or
    entries would time out in the queue.
    """

    read_ahead_bytes: int = 16 << 20
    """Bytes that ``read`` requests ahead of its consumer, each read reckoned at the largest entry seen."""

    tail_wait_s: float = 4.0
    """How long ``tail`` lets a bookie hold a long poll for the next entry of an open ledger."""

    tail_poll_s: float = 0.1
    """Mean pause of ``tail`` between two requests to bookies that do not hold long polls."""

    backoff_initial_s: float = 0.1
    """Mean back-off after the first failure to reach a bookie; doubled after each further one."""

    backoff_max_s: float = 10.0
    """The longest mean back-off."""

    topology_script: str | None = None
    """File of the script that maps hosts to racks (networkTopologyScriptFileName of Java; topology.py)."""

    rack_map: str | None = None
    """File with the racks, in Pulsar's format, or ``znode:`` and the path of the znode, ``/bookies`` for Pulsar's own
    (topology.py).
    """

    frame_bytes_max: int = FRAME_BYTES_MAX
    """Largest frame sent or received, in bytes; the same as the bookies' (nettyMaxFrameSizeBytes)."""

    tls: Literal["off", "start", "direct"] = field(default_factory=_default("tls", "off"))
    """TLS to the bookies: none, by START_TLS as Java's client does, or from the first byte, which only bkbox's
    bookies support. There is no fallback to none: a bookie that offers no TLS gets no request.
    """

    tls_ca_file: str | None = field(default_factory=_default("tls_ca_file", None))
    """CA certificates that sign those of bookies, PEM; None: the system's."""

    tls_certificate_file: str | None = field(default_factory=_default("tls_certificate_file", None))
    tls_key_file: str | None = field(default_factory=_default("tls_key_file", None))
    """The client's certificate and key, PEM; None: none is sent. The key's mode has to be 0600."""

    tls_check_host_name: bool = field(default_factory=_default("tls_check_host_name", True))
    """If true, a bookie's certificate has to name the host that was asked for."""

    auth: Literal["none", "sasl", "token"] = field(default_factory=_default("auth", "none"))
    """Authentication of the client: sasl is DIGEST-MD5, for Java's bookies; token is bkbox's own."""

    auth_user: str = field(default_factory=_default("auth_user", ""))
    auth_secret_file: str | None = field(default_factory=_default("auth_secret_file", None))
    """The user, and the file with the password or token; its mode has to be 0600."""

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
"""Options for which 0 would disable the feature, or retry without a pause."""

_FRAME_BYTES = range(1 << 8, 1 << 31)
"""Sizes of frames: the lower bound leaves space for the other fields of a request, the upper one is what its length
field can express.
"""


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
