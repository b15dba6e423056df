"""The HTTP paths of Apache's bookie about this bookie; paths about the cluster: cluster.py and recovery.py. Requests
and responses have the same shapes, so that existing tools keep working. Responses that are plain text in Java, errors
included, are text here.

Absent, as bkbox has nothing like it: ``last_log_mark`` (there is no journal to trim), ``expand_storage`` (`bkbox disk
add`), ``entry_location_compact`` (no RocksDB), suspending compaction alone (jobs can be paused), reading entries
(`bkbox ledger read`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bkbox.api.admin.routes import Query, Request, Route, TextResponse
from bkbox.api.java import cluster, models, recovery
from bkbox.bookie.readonly import INTENTS, OPERATOR
from bkbox.checks.health import not_ready
from bkbox.errors import JobRefusedError
from bkbox.jobs.job import JobKind
from bkbox.storage.log.segment import ENTRY_LOG_DIR

if TYPE_CHECKING:
    from bkbox.api.shared import Api
    from bkbox.supervisor.supervisor import Supervisor

BOOKIE = "/api/v1/bookie"
TEXT = "text/plain"


@dataclass(frozen=True, slots=True)
class ForceGc:
    """Both are taken and mean nothing here: there is one kind of compaction."""

    forceMajor: bool | None = None  # noqa: N815
    forceMinor: bool | None = None  # noqa: N815


@dataclass(frozen=True, slots=True)
class SetReadOnly:
    """A request that makes the bookie read-only, or writable."""

    readOnly: bool  # noqa: N815


def routes(api: Api, bookie: Supervisor) -> tuple[Route, ...]:
    return (
        *_of_state(api, bookie),
        *_of_space(api, bookie),
        *cluster.routes(api),
        *recovery.routes(api, bookie),
    )


def _of_state(api: Api, bookie: Supervisor) -> tuple[Route, ...]:
    async def heartbeat(_request: Request) -> object:
        return TextResponse("OK\n")

    async def state(_request: Request) -> object:
        return asdict(models.state_of(await api.status()))

    async def read_only(_request: Request) -> object:
        return {"readOnly": not (await api.status()).writable}

    async def set_read_only(request: Request) -> object:
        wanted = request.body_as(SetReadOnly).readOnly
        await bookie.readonly_requests.set_for_bookie(
            {OPERATOR} if wanted else INTENTS, wanted=wanted
        )
        return await read_only(request)

    async def ready(_request: Request) -> object:
        why = not_ready(await api.status())
        return (
            TextResponse(f"Bookie is not fully started: {why}", status=503)
            if why
            else TextResponse("OK")
        )

    async def sanity(_request: Request) -> object:
        return asdict(models.sanity_of(await api.status(), await api.probes.recent()))

    async def server_config(_request: Request) -> object:
        config = bookie.config
        return {
            key: ",".join(map(str, value)) if isinstance(value, list) else str(value)
            for key, value in config.values().items()
            if config.provenance[key] != "default"
        }

    return (
        Route(
            "GET", "/heartbeat", heartbeat, "Responds while the bookie runs.", media=TEXT, java=True
        ),
        Route(
            "GET",
            "/api/v1/config/server_config",
            server_config,
            "Keys that are set, with bkbox's names.",
            returns=dict[str, str],
            java=True,
        ),
        Route(
            "GET",
            f"{BOOKIE}/state",
            state,
            "The state of the bookie.",
            returns=models.BookieState,
            java=True,
        ),
        Route(
            "GET",
            f"{BOOKIE}/state/readonly",
            read_only,
            "True if it accepts no entries.",
            returns=dict[str, bool],
            java=True,
        ),
        Route(
            "PUT",
            f"{BOOKIE}/state/readonly",
            set_read_only,
            "Have it take no entries, or take them again.",
            SetReadOnly,
            returns=dict[str, bool],
            java=True,
        ),
        Route(
            "GET",
            f"{BOOKIE}/is_ready",
            ready,
            "Responds while it serves.",
            media=TEXT,
            statuses=(503,),
            java=True,
        ),
        Route(
            "GET",
            f"{BOOKIE}/sanity",
            sanity,
            "True if its disks store and return what is written; each is tried every 30 s at most.",
            returns=models.Sanity,
            java=True,
        ),
    )


def _of_space(api: Api, bookie: Supervisor) -> tuple[Route, ...]:
    async def info(_request: Request) -> object:
        return asdict(models.space_of(await api.status()))

    async def disk_files(request: Request) -> object:
        places = {
            "journal": ([bookie.config.journal] if bookie.config.journal else [], ""),
            "entrylog": ([disk.path for disk in bookie.disks], ENTRY_LOG_DIR),
            "index": ([disk.path for disk in bookie.disks], "index"),
        }
        file_type = request.query.get("file_type")
        chosen = {file_type: places[file_type]} if file_type in places else places
        return {
            f"{kind} files": "".join(
                f"{name}\t" for path in paths for name in _names(path / folder)
            )
            for kind, (paths, folder) in chosen.items()
        }

    async def gc(_request: Request) -> object:
        return {"is_in_force_gc": str(models.gc_runs(await api.status())).lower()}

    async def force_gc(_request: Request) -> object:
        if bookie.jobs is None:
            raise JobRefusedError("the bookie is still starting: try again when it is up")
        if not models.gc_runs(await api.status()):
            await bookie.jobs.start(JobKind.GC, {"compact": "true"})
        return f"Triggered GC on BookieServer: {bookie.config.bookie_id}"

    async def details(_request: Request) -> object:
        return [asdict(each) for each in models.gc_details(await api.status())]

    async def suspended(_request: Request) -> object:
        return {"isMajorGcSuspended": "false", "isMinorGcSuspended": "false"}

    texts = dict[str, str]
    return (
        Route(
            "GET",
            f"{BOOKIE}/info",
            info,
            "Room on its disks.",
            returns=models.BookieSpace,
            java=True,
        ),
        Route(
            "GET",
            f"{BOOKIE}/list_disk_file",
            disk_files,
            "Names of its files, with tabs between.",
            returns=texts,
            query=(Query("file_type", "string", "journal, entrylog or index; else all."),),
            java=True,
        ),
        Route(
            "GET",
            f"{BOOKIE}/gc",
            gc,
            "True while a requested collection goes on.",
            returns=texts,
            java=True,
        ),
        Route(
            "PUT",
            f"{BOOKIE}/gc",
            force_gc,
            "Start a collection and a compaction.",
            ForceGc,
            returns=str,
            java=True,
        ),
        Route(
            "GET",
            f"{BOOKIE}/gc_details",
            details,
            "Collection and compaction, of each disk.",
            returns=list[models.GcDetails],
            java=True,
        ),
        Route(
            "GET",
            f"{BOOKIE}/gc/suspend_compaction",
            suspended,
            "True if compaction is suspended: never.",
            returns=texts,
            java=True,
        ),
    )


def _names(folder: Path) -> list[str]:
    try:
        return sorted(each.name for each in folder.iterdir())
    except OSError:
        return []
