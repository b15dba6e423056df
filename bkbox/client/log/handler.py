"""``logging.Handler`` that writes to a log: each line of Python's logging is a record.

It never blocks the logging thread. Lines go to a background thread through a bounded queue. While the queue is full
lines are dropped and counted, and the next line that gets through reports the count. A writer that ends (another
writer opens the log, the cluster is unreachable) is opened again, with exponential back-off.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import Unpack

from bkbox.base.backoff import Backoff
from bkbox.client import arguments
from bkbox.client.log.options import LogOptions
from bkbox.client.options import ClientOptions, ConnectOptions
from bkbox.client.sync import LogWriter, connect
from bkbox.errors import BkboxError
from bkbox.metadata.loglists import log_name

LINES_MAX = 10_000
"""Lines in the queue, at most."""

_BATCH_LINES = 1_000
_WAIT_S, _WAIT_MAX_S = 0.1, 10.0


class BookKeeperHandler(logging.Handler):
    """Writes to the log ``name`` of the cluster at ``uri``; ``options``: those of its writer, ``client``: the fields
    of ClientOptions. ``dropped``: lines that were lost. Use a log from one process only: a second process that opens
    it ends the first one's writer. Raises InvalidArgumentError, InvalidIdError, ConfigError.
    """

    def __init__(
        self,
        uri: str,
        name: str,
        options: LogOptions | None = None,
        **client: Unpack[ConnectOptions],
    ) -> None:
        super().__init__()
        arguments.instance("uri", uri, str, "text, such as sqlite:PATH")
        self._options = LogOptions() if options is None else options
        arguments.instance("options", self._options, LogOptions, "LogOptions(...)")
        arguments.made_of(ClientOptions, client)
        self.dropped = 0
        self._reported_drops = 0
        self._uri = uri
        self._name = log_name(name)
        self._client = client
        self._lines: queue.Queue[tuple[bytes, int] | None] = queue.Queue(LINES_MAX)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"log {name}", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if threading.current_thread() is self._thread or record.name.startswith("bkbox."):
            return  # what the client logs about this write must not be written here
        try:
            text = self.format(record).encode(errors="backslashreplace")
            line = (text, arguments.integer("time in ms", int(record.created * 1000)))
        except Exception:  # noqa: BLE001 - a line that cannot be formatted must not end the program that logs
            self.handleError(record)
            return
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self.dropped += 1

    def flush(self, timeout_s: float = 10.0) -> None:
        """Wait until the lines logged so far are in the log, for at most ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while self._lines.unfinished_tasks and time.monotonic() < deadline:
            if self._ended.wait(0.01):
                return

    def close(self) -> None:
        """Write the queued lines, for ten seconds at most, and end."""
        if not self._ended.is_set():
            self.flush()
            self._ended.set()
            self._lines.put(None)
            self._thread.join(10.0)
        super().close()

    # ---- in the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        backoff, batch = Backoff(_WAIT_S, _WAIT_MAX_S), [self._lines.get()]
        while not self._ended.is_set():
            try:
                with (
                    connect(self._uri, **self._client) as client,
                    client.log(self._name).open_writer(self._options) as writer,
                ):
                    while not self._ended.is_set():
                        self._write(writer, batch)
                        backoff.reset()
                        batch = self._next()
            except BkboxError:
                if self._ended.wait(backoff.next_s()):
                    return

    def _next(self) -> list[tuple[bytes, int] | None]:
        batch = [self._lines.get()]
        while len(batch) < _BATCH_LINES:
            try:
                batch.append(self._lines.get_nowait())
            except queue.Empty:
                break
        return batch

    def _write(self, writer: LogWriter, batch: list[tuple[bytes, int] | None]) -> None:
        given = [line for line in batch if line is not None]
        # A line that is too long for an entry would be retried for ever, and block every line after it.
        lines = [line for line in given if len(line[0]) <= writer.payload_bytes_max]
        self.dropped += len(given) - len(lines)
        dropped = self.dropped
        if dropped > self._reported_drops and lines:
            lines.insert(
                0, (b"%d lines were dropped" % (dropped - self._reported_drops), lines[0][1])
            )
        writer.append_many(
            [line for line, _ in lines], timestamps_ms=[created_ms for _, created_ms in lines]
        )
        self._reported_drops = dropped
        for _ in batch:
            self._lines.task_done()
