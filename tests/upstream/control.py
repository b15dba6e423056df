"""Starts, stops, pauses, … bookies for upstream's tests, which run in a JVM and ask over a socket on loopback.

One connection per request: a JSON object a line in each direction, {"do": name, ...} and {"result": value} or
{"error": text}. A bookie is known by the first folder for ledgers of its Java configuration. Requests for different
bookies are served at the same time. At the end of the context every bookie is killed.
"""

from __future__ import annotations

import json
import socketserver
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

from bkbox.api.admin import client
from bkbox.api.admin import disks as admin
from bkbox.api.admin.socket_path import SOCKET_NAME
from bkbox.errors import BkboxError
from bkbox.jobs.job import JobKind, JobState
from tests.harness.processes import BookieProcess, free_port, put_keys
from tests.harness.waiting import wait_for

STOPPED = {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE}


class UpstreamBookie(BookieProcess):
    """A bookie whose configuration comes from a test. Its disks are folders of its own: in those that the test has made
    a Java bookie of the test's may be started later."""

    def prepare(self, disks: int, keys: dict[str, object]) -> None:
        """``bkbox init`` the first time; the keys are written each time."""
        if not self.config.exists():
            self.init(disks=disks)
        put_keys(self, listen=f"127.0.0.1:{self.port}", **keys)

    @property
    def admin_socket(self) -> Path:
        return self.disks[0] / SOCKET_NAME

    def suspend(self) -> None:
        """No request gets a response, from the return on. Connections and the registration stay, as they do where a
        Java bookie's requests are suspended."""
        children = self.children()
        for child in children:
            child.suspend()
        for child in children:
            wait_for(lambda child=child: _is_stopped(child), f"{child} to stop", pause=0.01)

    def resume(self) -> None:
        for child in self.children():
            child.resume()

    def collect(self) -> None:
        """Returns when everything that was deleted is gone from the disks."""
        job = client.start_job(self.admin_socket, JobKind.GC, {"empty_trash": "true"})
        done = wait_for(
            lambda: (found := client.job(self.admin_socket, job.id)).state.ended and found,
            "the end of the collection",
            timeout=60.0,
            pause=0.02,
        )
        assert done.state is JobState.DONE, done


def _is_stopped(process: psutil.Process) -> bool:
    try:
        return process.status() in STOPPED
    except psutil.NoSuchProcess:
        return True


class _Handler(socketserver.StreamRequestHandler):
    server: Control

    def handle(self) -> None:
        line = self.rfile.readline()
        if not line:  # the JVM was ended
            return
        request = json.loads(line)
        try:
            answer = {"result": self.server.carry_out(request)}
        except (AssertionError, BkboxError, OSError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        with suppress(ConnectionError):
            self.wfile.write(json.dumps(answer).encode() + b"\n")


class Control(socketserver.ThreadingTCPServer):
    """A context that serves inside it. Requests under way are carried out before it ends."""

    daemon_threads = False

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port: int = self.server_address[1]
        self.bookies: dict[str, UpstreamBookie] = {}
        self._root = root
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()
        for bookie in self.bookies.values():
            bookie.ensure_gone()

    def carry_out(self, request: dict[str, Any]) -> object:
        match request["do"]:
            case "free_port":
                with self._lock:
                    return free_port()
            case "start":
                self._start(request)
            case "stop":
                self._stop(self.bookies[request["folder"]])
            case "kill":
                self.bookies[request["folder"]].ensure_gone()
            case "suspend":
                self.bookies[request["folder"]].suspend()
            case "resume":
                self.bookies[request["folder"]].resume()
            case "collect":
                self.bookies[request["folder"]].collect()
            case "read_only_on" | "read_only_off" as wanted:
                bookie = self.bookies[request["folder"]]
                admin.read_only(bookie.admin_socket, None, wanted=wanted == "read_only_on")
            case "is_writable":
                return client.fetch_status(self.bookies[request["folder"]].admin_socket).writable
            case other:
                raise AssertionError(f"no request {other!r}")
        return None

    def _start(self, request: dict[str, Any]) -> None:
        folder = request["folder"]
        with self._lock:
            bookie = self.bookies.get(folder)
            if bookie is None:
                name = f"bookie{len(self.bookies)}"
                bookie = UpstreamBookie(
                    self._root, request["metadata"], name=name, port=request["port"]
                )
                self.bookies[folder] = bookie
        bookie.port = request["port"]
        bookie.prepare(request["disks"], request["settings"])
        bookie.start(wait=False)
        try:
            bookie.wait_ready()
        except AssertionError:
            bookie.ensure_gone()
            raise

    def _stop(self, bookie: UpstreamBookie) -> None:
        if bookie.process is not None:
            bookie.resume()
            status = bookie.stop()
            assert status == 0, f"{bookie.bookie_id} ended with {status}:\n{bookie.stderr}"

    def logs(self) -> dict[str, str]:
        """The end of what each bookie has logged since its last start."""
        return {
            f"{bookie.root.name} {bookie.bookie_id}": bookie.stderr[-6000:]
            for bookie in self.bookies.values()
        }
