"""Upstream's compiled tests and our base class for them: built by Maven, run by JUnit's console launcher."""

from __future__ import annotations

import functools
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from tests.harness.java import BUILD, VERSION, java_command, maven_build
from tests.upstream import testclasses
from tests.upstream.control import Control

SOURCES = Path(__file__).parent / "java"
RUN_TIMEOUT_S = 500.0
"""Time-out of one test; a class has many."""
CLASS_TIMEOUT_S = 3600.0
LAUNCHER = "org.junit.platform.console.ConsoleLauncher"
PACKAGE = "org.apache.bookkeeper"
_TEST = re.compile(r"className = '[\w.$]*?(\w+)', methodName = '(\w+)")


@functools.cache
def class_path(bookies: str = "bkbox") -> str:
    """With our base class before upstream's of the same name, or after it: for Java bookies."""
    ours, theirs = maven_build(SOURCES, BUILD / "upstream").split(":")
    ordered = f"{ours}:{theirs}" if bookies == "bkbox" else f"{theirs}:{ours}"
    return f"{resources()}:{ordered}"


def resources() -> Path:
    """A folder with the files beside upstream's test classes: tests want keys and certificates as files."""
    folder = BUILD / "upstream" / "resources"
    with ZipFile(_tests_jar()) as archive:
        names = [name for name in archive.namelist() if "/" not in name]
        archive.extractall(folder, [name for name in names if not (folder / name).exists()])
    return folder


def _tests_jar() -> Path:
    return BUILD / "upstream" / "lib" / f"bookkeeper-server-{VERSION}-tests.jar"


def classes_of_clusters() -> list[str]:
    """All classes with tests that extend the base class, below org.apache.bookkeeper."""
    class_path()
    base = f"{PACKAGE}.test.BookKeeperClusterTestCase".replace(".", "/")
    found = testclasses.that_extend(_tests_jar(), base)
    return [name.replace("/", ".").removeprefix(f"{PACKAGE}.") for name in found]


@dataclass(frozen=True)
class Result:
    """One Java test: its name (with the parameters, where it has such), and why it did not pass."""

    name: str
    failure: str | None


def selector(name: str) -> str:
    """The launcher's option for a class, or CLASS#METHOD, below org.apache.bookkeeper."""
    return f"--select-{'method' if '#' in name else 'class'}={PACKAGE}.{name}"


def discover(selectors: list[str]) -> set[str]:
    """The tests that there are, as Class.method."""
    command = java_command(
        LAUNCHER,
        *("discover", "--disable-banner", "--disable-ansi-colors", "--details=verbose"),
        *selectors,
        classes=class_path(),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return {".".join(found) for found in re.findall(_TEST, done.stdout)}


def run(
    root: Path, selectors: list[str], bookies: str = "bkbox", timeout_s: float = RUN_TIMEOUT_S
) -> tuple[list[Result], dict[str, str]]:
    """Run Java tests in a JVM of their own, in an empty folder: results, and logs of the parts by name. No results: the
    JVM ended early, or had to be killed."""
    reports, log = root / "reports", root / "jvm.log"
    with Control(root) as control, log.open("wb") as output:
        temporary = root / "tmp"
        temporary.mkdir()
        path = class_path(bookies)
        in_their_checkout = root / "src" / "test" / "resources"
        in_their_checkout.parent.mkdir(parents=True)
        in_their_checkout.symlink_to(resources())
        command = java_command(
            LAUNCHER,
            *("execute", "--disable-banner", "--details=none", f"--reports-dir={reports}"),
            *selectors,
            heap_mb=768,
            options=[f"-Dbkbox.control={control.port}", f"-Djava.io.tmpdir={temporary}"],
            classes=path,
        )
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command, stdout=output, stderr=output, cwd=root, timeout=timeout_s, check=False
            )
        logs = {"the JVM": log.read_text(errors="replace")[-20_000:], **control.logs()}
    return [result for path in sorted(reports.glob("*.xml")) for result in _read(path)], logs


def _read(path: Path) -> list[Result]:
    """The results in one of the launcher's reports."""
    found = []
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.attrib['classname'].rpartition('.')[2]}.{case.attrib['name']}"
        if case.find("skipped") is not None:
            continue  # what it assumes does not hold for this parameter set
        trouble = [part for kind in ("failure", "error") for part in case.iter(kind)]
        failure = "\n".join(f"{each.tag}: {each.text}" for each in trouble) if trouble else None
        found.append(Result(name, failure))
    return found
