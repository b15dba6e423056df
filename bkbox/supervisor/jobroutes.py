"""What the admin server answers about jobs.

``GET``  jobs, jobs/{id}                          one job, or all that are remembered
``POST`` jobs                                     start one: ``kind``, ``arguments``
``POST`` jobs/{id}/{cancel|pause|resume|rate}     do something to one; ``rate`` takes ``bytes_per_second``
``POST`` jobs/all/rate                            the speed limit of all together; null: as configured
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bkbox.admin.paths import JOBS_URL
from bkbox.admin.routes import Asked, Route
from bkbox.errors import EncodingError, JobRefusedError
from bkbox.jobs.job import JobAction, JobKind, to_json
from bkbox.supervisor.jobs import AS_CONFIGURED, kind_of

if TYPE_CHECKING:
    from bkbox.supervisor.jobs import Jobs


def routes(present: Callable[[], Jobs | None]) -> tuple[Route, ...]:
    """``present`` gives the jobs of the bookie; None while it starts."""

    def jobs() -> Jobs:
        found = present()
        if found is None:
            raise JobRefusedError("the bookie is still starting: try again when it is up")
        return found

    async def list_all(_asked: Asked) -> object:
        return [to_json(job) for job in jobs().registry.all()]

    async def show(asked: Asked) -> object:
        return to_json(jobs().registry.get(asked.number("id")))

    async def start(asked: Asked) -> object:
        kind = kind_of(asked.values.get("kind"))
        if kind is JobKind.LIMBO:
            raise JobRefusedError(
                "the bookie starts the limbo job by itself when there is need of it"
            )
        return to_json(await jobs().start(kind, _arguments(asked)))

    async def control(asked: Asked) -> object:
        action = _action(asked.place["action"])
        rate = _rate(asked) if action is JobAction.RATE else 0
        return to_json(await jobs().control(asked.number("id"), action, rate))

    async def pace(asked: Asked) -> object:
        configured = asked.values.get("bytes_per_second", "") is None
        jobs().pace(AS_CONFIGURED if configured else _rate(asked))
        return {}

    return (
        Route("GET", JOBS_URL, list_all),
        Route("POST", JOBS_URL, start),
        Route("GET", f"{JOBS_URL}/{{id}}", show),
        Route("POST", f"{JOBS_URL}/all/rate", pace),
        Route("POST", f"{JOBS_URL}/{{id}}/{{action}}", control),
    )


def _arguments(asked: Asked) -> dict[str, str]:
    found = asked.values.get("arguments", {})
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise EncodingError("the arguments of a job are an object of texts")
    return found


def _action(text: str) -> JobAction:
    try:
        return JobAction(text)
    except ValueError:
        raise EncodingError(f"a job cannot be told to {text!r}: {', '.join(JobAction)}") from None


def _rate(asked: Asked) -> int:
    found = asked.values.get("bytes_per_second")
    if type(found) is not int or found < 0:
        raise EncodingError(f"bytes_per_second is {found!r}; it has to be a whole number")
    return found
