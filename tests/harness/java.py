"""The real Java parts: BookKeeper and ZooKeeper from Maven Central, and processes that run them.

``class_path()`` builds tests/interop/java with Maven, once per checkout and version of BookKeeper, into
build/bookkeeper-VERSION/interop; ``maven_build()`` does so for any other folder with a pom.xml. BOOKKEEPER_VERSION in
the environment names another version than the default. Without Java 17 or Maven ``missing_reason()`` says so; tests
call ``require_java()``, which skips them then, or fails them if skipping is not permitted (CI=true in the environment).
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.waiting import wait_for

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCES = CHECKOUT / "tests" / "interop" / "java"
VERSION = os.environ.get("BOOKKEEPER_VERSION") or "4.18.0"
BUILD = CHECKOUT / "build" / f"bookkeeper-{VERSION}"
"""What is built for one version of BookKeeper."""
BUILD_TIMEOUT_S = 240.0
JAVA_MIN = 17

SMALL_AND_QUICK = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/java.util.zip=ALL-UNNAMED",
]
"""Options of every JVM: many start on few cores and none lives long."""


@functools.cache
def missing_reason() -> str | None:
    """Why the Java parts cannot run here; None if they can."""
    for command in ("java", "javac", "mvn", "setpriv"):
        if shutil.which(command) is None:
            return f"{command} is not on PATH (JDK {JAVA_MIN} or newer, Maven, util-linux)"
    for command in ("java", "javac"):
        done = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
        found = re.search(r'(?:version "|javac )(\d+)', done.stderr + done.stdout)
        if done.returncode != 0 or found is None:
            return f"'{command} -version' does not say its version: {done.stderr.strip()!r}"
        if int(found[1]) < JAVA_MIN:
            return f"{command} is version {found[1]}: needs {JAVA_MIN} or newer"
    return None


def require_java() -> None:
    """Skips the test without Java; fails it if skipping is not permitted."""
    reason = missing_reason()
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"Java is required here (CI=true): {reason}", pytrace=False)
    pytest.skip(f"no Java parts: {reason}")


@functools.cache
def class_path() -> str:
    """The argument of ``java -cp``: our classes, BookKeeper, its client, ZooKeeper and what they need."""
    return maven_build(SOURCES, BUILD / "interop")


def maven_build(sources: Path, build: Path) -> str:
    """Compiles the Maven project in ``sources`` into ``build``, unless that has been done; returns its class path, with
    the project's own classes first."""
    build.parent.mkdir(parents=True, exist_ok=True)
    with _locked(build.with_suffix(".lock")):
        stamp = build / "stamp"
        wanted = _fingerprint(sources)
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(build, ignore_errors=True)
            _compile(sources, build)
            stamp.write_text(wanted)
    return f"{build / 'classes'}:{build / 'lib'}/*"


def _compile(sources: Path, build: Path) -> None:
    goals = ["resources:resources", "compiler:compile", "dependency:copy-dependencies"]
    _maven(sources / "pom.xml", f"-Dbuild.folder={build}", *goals)


def maven_jars(pom: Path, *properties: str) -> Path:
    """The folder with the jars that a pom.xml without code names, brought once per checkout and version.
    ``properties``: ``-Dname=value`` for Maven; with others than the last time the jars are brought anew.
    """
    jars = BUILD / pom.parent.name
    jars.parent.mkdir(parents=True, exist_ok=True)
    with _locked(jars.with_suffix(".lock")):
        stamp = jars / "stamp"
        wanted = "\n".join([pom.read_text(), *properties])
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(jars, ignore_errors=True)
            _maven(pom, "dependency:copy-dependencies", f"-DoutputDirectory={jars}", *properties)
            stamp.write_text(wanted)
    return jars


def pulsar_jars(pom: Path) -> Path:
    """The same of Pulsar's jars; the variable PULSAR_VERSION names another version than that of the pom.xml."""
    version = os.environ.get("PULSAR_VERSION")
    return maven_jars(pom, *([f"-Dpulsar.version={version}"] if version else []))


def _maven(pom: Path, *arguments: str) -> None:
    # A property of the command line counts in every pom.xml that is imported, too.
    versions = [f"-Dbookkeeper.version={VERSION}"] * ("${bookkeeper.version}" in pom.read_text())
    done = subprocess.run(
        ["mvn", "--batch-mode", "--quiet", "-f", pom, *versions, *arguments],
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(
            f"Maven could not build {pom} (status {done.returncode}):\n{done.stdout}{done.stderr}"
        )


def _fingerprint(sources: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted([sources / "pom.xml", *(sources / "src").rglob("*")]):
        if path.is_file():
            digest.update(f"{path.relative_to(sources)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """pytest-xdist has several processes, and only one of them builds."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def java_command(
    main: str,
    *arguments: str,
    heap_mb: int = 256,
    options: Sequence[str] = (),
    classes: str | None = None,
) -> list[str]:
    """The command line that runs a main class; its process dies with the thread that starts it. ``classes``: its class
    path, that of the interop tests by default."""
    return [
        *("setpriv", "--pdeathsig", "KILL", "java", *SMALL_AND_QUICK),
        *(f"-Xmx{heap_mb}m", f"-XX:MaxDirectMemorySize={heap_mb}m", *options),
        *("-cp", classes or class_path(), main, *arguments),
    ]


class JavaProcess:
    """A JVM that runs in the background. Its output is kept in a file, for the analysis of failures."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    def launch(
        self,
        command: Sequence[str],
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
    ) -> None:
        """Starts it; its output, or only its standard error, is appended to ``log``, beside which it unpacks its native
        libraries: one that is killed does not remove them."""
        assert self.process is None, f"{self.name} runs already"
        java = command.index("java") + 1
        command = [*command[:java], f"-Djava.io.tmpdir={self.log.parent}", *command[java:]]
        with self.log.open("ab") as log:
            log.write(f"==== {self.name} starts ====\n".encode())
            log.flush()
            self.process = subprocess.Popen(
                command, stdin=stdin, stdout=log if stdout is None else stdout, stderr=log
            )

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def wait_until(self, is_ready: Callable[[], object], timeout: float = 200.0) -> None:
        """Waits until it is ready; fails with the end of its log if it ends or times out."""
        deadline = time.monotonic() + timeout
        while not is_ready():
            if not self.is_running or time.monotonic() > deadline:
                how = "is not ready" if self.is_running else "has ended"
                raise AssertionError(f"{self.name} {how}:\n{self.log_tail()}")
            time.sleep(0.05)

    def stop(self, timeout: float = 120.0) -> int:
        """Sends SIGTERM, and waits; returns the exit status. Killed after the time-out."""
        if self.process is None:
            return 0
        self.resume()
        self.process.terminate()
        try:
            return self._gone(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} does not stop:\n{self.log_tail()}") from None

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self._gone(30)

    def suspend(self) -> None:
        """Sends SIGSTOP: from the return on connections stay open, and no request gets a response."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.process.pid}/task")
        wait_for(
            lambda: all(map(_is_stopped, tasks.iterdir())), f"{self.name} to stop", pause=0.001
        )

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def log_tail(self, size: int = 3000) -> str:
        if not self.log.exists():
            return "(no log)"
        return self.log.read_text(errors="replace")[-size:]

    def _gone(self, timeout: float) -> int:
        assert self.process is not None
        status = self.process.wait(timeout)
        self.process = None
        return status


def _is_stopped(task: Path) -> bool:
    """True if a thread is stopped (or has ended)."""
    try:
        return task.joinpath("stat").read_text().rpartition(")")[2].split()[0] in "TXZ"
    except (FileNotFoundError, ProcessLookupError):
        return True
