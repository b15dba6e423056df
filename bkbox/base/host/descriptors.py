"""How many descriptors (files, connections) this process, and those that it starts, may have open."""

from __future__ import annotations

import contextlib
import resource

from bkbox.errors import HostError


def allow(wanted: int) -> int:
    """Have the process allowed so many descriptors, or as many as may be; how many it is allowed then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (max(wanted, hard), hard):  # beyond the hard limit only root gets
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, most)), most))
            break
    return allowed_now()


def require_descriptors(least: int) -> None:
    """Raises HostError where not even so many can be had."""
    allowed = allowed_now()
    if allowed < least:
        allowed = allow(least)
    if allowed < least:
        raise HostError(f"bkbox needs {least} at least: {too_few(allowed)}")


def allowed_now() -> int:
    """How many descriptors this process may have."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def too_few(allowed: int) -> str:
    """The figure, and how to raise it."""
    return (
        f"this process may have {allowed} files and connections open at once. Raise that limit first: ulimit -n "
        "131072, or LimitNOFILE=131072 in the unit of systemd"
    )
