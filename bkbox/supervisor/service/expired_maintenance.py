"""Ends maintenance windows that have expired (metadata/maintenance.py): there may be no operator's command left to
restore the delay of Java's auditors. Every bookie does this for the whole cluster."""

from __future__ import annotations

import asyncio
import logging
import time

from bkbox.errors import MetadataError
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.maintenance import end_expired

log = logging.getLogger(__name__)

_CHECK_EVERY_S = 60.0


async def close_expired_windows(store: MetadataStore) -> None:
    """Ends expired windows periodically, until cancelled."""
    while True:
        try:
            await end_expired(store.maintenance_windows, time.time_ns() // 1_000_000)
        except MetadataError as error:
            log.warning("maintenance windows that are over cannot be ended now: %s", error)
        await asyncio.sleep(_CHECK_EVERY_S)
