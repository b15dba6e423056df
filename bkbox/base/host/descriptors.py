"""The limit of open descriptors (files, connections) of this process and its children."""

from __future__ import annotations

import contextlib
import resource

from bkbox.errors import HostError


def allow(target: int) -> int:
    """Raise the limit to ``target``, or as far as allowed; returns the resulting limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (max(target, hard), hard):  # beyond the hard limit only root gets
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(target, most)), most))
            break
    return allowed_now()


def require_descriptors(least: int) -> None:
    """Raise the limit to ``least``. Raises HostError if that is not allowed."""
    allowed = allowed_now()
    if allowed < least:
        allowed = allow(least)
    if allowed < least:
        raise HostError(f"bkbox needs {least} at least: {too_few(allowed)}")


def allowed_now() -> int:
    """The present limit."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def too_few(allowed: int) -> str:
    """A message with the limit, and how to raise it."""
    return (
        f"this process may have {allowed} files and connections open at once. Raise that limit first: ulimit -n "
        "131072, or LimitNOFILE=131072 in the unit of systemd"
    )
