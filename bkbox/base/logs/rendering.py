"""The form of a log line. structlog's processors render records of the standard library: so lines of libraries look
like our own, and no module needs more than ``logging``.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

from bkbox.base.logs.control import in_json, in_one_line
from bkbox.base.redaction import Secrets

_loaded = sys.modules.get("rich")
sys.modules["rich"] = None  # type: ignore[assignment] # for coloured tracebacks structlog would load all of it
try:
    import structlog
    from structlog.typing import EventDict, Processor, WrappedLogger
finally:
    if _loaded is None:
        del sys.modules["rich"]
    else:
        sys.modules["rich"] = _loaded

_PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""syslog's priorities, as journald takes them."""

_SECRETS = Secrets()

_HAS_LINES = ("exception", "stack")


def formatter(process: str, layout: str, *, journal: bool) -> logging.Formatter:
    """The formatter for one process. ``layout``: console or json."""

    def name_process(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["process"] = process
        return event

    before: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        name_process,
        structlog.stdlib.ExtraAdder(),
    ]
    if not journal:
        before.append(_add_time)
    processors: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if layout == "json":
        processors += [
            structlog.processors.format_exc_info,
            _without_secrets,
            structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
            _escaped_json,
        ]
    else:
        processors += [
            structlog.processors.format_exc_info,
            _without_secrets,
            _without_control_characters,
            _console(),
        ]
    made = structlog.stdlib.ProcessorFormatter(foreign_pre_chain=before, processors=processors)
    return _Prioritised(made) if journal else made


def _console() -> Processor:
    return structlog.dev.ConsoleRenderer(
        colors=False, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
    )


def _add_time(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the time of the logging call: the line may be written later."""
    logged_at = datetime.fromtimestamp(event["_record"].created, UTC)
    event["timestamp"] = logged_at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return event


def _without_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    cleaned = _SECRETS.removed_from_value(
        {key: value for key, value in event.items() if key != "exc_info"}
    )
    assert isinstance(cleaned, dict)
    return {**event, **cleaned}


def _without_control_characters(
    _logger: WrappedLogger, _method: str, event: EventDict
) -> EventDict:
    return {
        key: _in_one_piece(key, value) if isinstance(value, str) else value
        for key, value in event.items()
    }


def _escaped_json(_logger: WrappedLogger, _method: str, line: Any) -> str:
    """Escape control characters in the line of the JSON renderer."""
    return in_json(line)


def _in_one_piece(key: str, text: str) -> str:
    """Keep one line one line. The lines of tracebacks are indented: none looks like a line of the log, whatever the
    error's text.
    """
    if key in _HAS_LINES:
        return "\n".join(f"    {in_one_line(line)}" for line in text.split("\n"))
    return in_one_line(text)


class _Prioritised(logging.Formatter):
    """Each line of a record with the priority that journald reads."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        priority = f"<{_PRIORITIES.get(record.levelname.lower(), 5)}>"
        lines = self._inner.format(record).splitlines() or [""]
        return "\n".join(priority + line for line in lines)
