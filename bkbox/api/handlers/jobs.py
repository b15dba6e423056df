"""Routes of the admin API about jobs.

``GET``  jobs, jobs/{id}                          one job, or all that are remembered
``POST`` jobs                                     start one: ``kind``, ``arguments``
``POST`` jobs/{id}/{cancel|pause|resume|rate}     apply an action to one; ``rate`` takes ``bytes_per_second``
``POST`` jobs/all/rate                            the rate limit of all together; null: as configured
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bkbox.api.admin.requests import SetRate, StartJob
from bkbox.api.admin.routes import NUMBER_MAX, Request, RequestHandler, Route
from bkbox.api.admin.socket_path import JOBS_URL
from bkbox.errors import BadRequestError, JobRefusedError
from bkbox.jobs.job import Job, JobAction, to_json
from bkbox.supervisor.jobs import AS_CONFIGURED

if TYPE_CHECKING:
    from bkbox.supervisor.jobs import Jobs


def routes(present: Callable[[], Jobs | None]) -> tuple[Route, ...]:
    """``present`` gives the jobs of the bookie; None while it starts."""

    def jobs() -> Jobs:
        found = present()
        if found is None:
            raise JobRefusedError("the bookie is still starting: try again when it is up")
        return found

    async def list_all(_request: Request) -> object:
        return [to_json(job) for job in jobs().registry.all()]

    async def show(request: Request) -> object:
        return to_json(jobs().registry.get(request.number("id")))

    async def start(request: Request) -> object:
        body_as = request.body_as(StartJob)
        return to_json(await jobs().start(body_as.kind, body_as.arguments))

    def control(action: JobAction) -> RequestHandler:
        async def handle(request: Request) -> object:
            rate = _rate(request.body_as(SetRate)) if action is JobAction.RATE else 0
            return to_json(await jobs().control(request.number("id"), action, rate))

        return handle

    async def pace(request: Request) -> object:
        body_as = request.body_as(SetRate)
        jobs().pace(AS_CONFIGURED if body_as.bytes_per_second is None else _rate(body_as))
        return {}

    return (
        Route("GET", JOBS_URL, list_all, "All jobs that are remembered.", returns=list[Job]),
        Route("POST", JOBS_URL, start, "Start a job.", StartJob, returns=Job),
        Route("GET", f"{JOBS_URL}/{{id}}", show, "One job.", returns=Job),
        Route(
            "POST",
            f"{JOBS_URL}/all/rate",
            pace,
            "Set the speed limit of all jobs together.",
            SetRate,
            returns=dict[str, str],
        ),
        *(
            Route(
                "POST",
                f"{JOBS_URL}/{{id}}/{action}",
                control(action),
                _SUMMARIES[action],
                SetRate if action is JobAction.RATE else None,
                returns=Job,
            )
            for action in JobAction
        ),
    )


_SUMMARIES = {
    JobAction.CANCEL: "Have a job end; what it has done stays.",
    JobAction.PAUSE: "Have a job wait.",
    JobAction.RESUME: "Have a job go on that was paused.",
    JobAction.RATE: "Set the speed limit of a job; 0: none of its own.",
}


def _rate(body_as: SetRate) -> int:
    rate = body_as.bytes_per_second
    if rate is None or not 0 <= rate <= NUMBER_MAX:
        found = "null" if rate is None else str(rate)[:40]
        raise BadRequestError(
            f"body.bytes_per_second is {found}; it has to be from 0 to {NUMBER_MAX}"
        )
    return rate
