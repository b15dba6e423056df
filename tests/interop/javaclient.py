"""Apache's client in a JVM of its own, driven over pipes (java/…/Driver.java), as a ``Client``."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from base64 import b64decode, b64encode
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.harness.java import JavaProcess
from tests.interop.clients import Client, Entries, Metadata, Reader, Refused, Writer
from tests.interop.javaparts import ZOOKEEPER_TIMEOUT_MS, command_for

ANSWER_TIMEOUT_S = 60.0
KINDS = {
    -1: Refused.PAST_END,
    -6: Refused.NOT_ENOUGH_BOOKIES,
    -7: Refused.NO_LEDGER,
    -11: Refused.CLOSED,
    -13: Refused.NO_ENTRY,
    -20: Refused.LEDGER_THERE,
    -22: Refused.ENTRY_THERE,
    -25: Refused.NO_LEDGER,
    -101: Refused.FENCED,
    -102: Refused.UNAUTHORIZED,
}
"""Codes of BKException."""


class Driver(JavaProcess):
    """The JVM. Any number of clients live in one; requests of several threads run side by side."""

    def __init__(self, root: Path, name: str = "driver", uri: str = "") -> None:
        """``uri``: of a cluster whose metadata needs another driver than BookKeeper's own."""
        root.mkdir(parents=True, exist_ok=True)
        self._uri = uri
        super().__init__(name, root / f"{name}.log")
        self._ids = itertools.count()
        self._asked: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None
        self._spare: Driver | None = None

    def spare(self) -> Driver:
        """Another JVM, for clients that are suspended: one for all, as long as this one lives."""
        if self._spare is None:
            self._spare = Driver(self.log.parent, f"{self.name}-spare", self._uri).start()
        return self._spare

    def kill(self) -> None:
        if self._spare is not None:
            self._spare.kill()
        super().kill()

    def start(self) -> Driver:
        self.launch(
            command_for(self._uri, "bkbox.interop.Driver", heap_mb=256),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self.listen()

    def listen(self) -> Driver:
        """Take the answers of the JVM that has been launched."""
        self._reader = threading.Thread(target=self._take_answers, daemon=True)
        self._reader.start()
        return self

    def ask(self, command: str, timeout: float = ANSWER_TIMEOUT_S, **arguments: Any) -> Any:
        """The result of one command. Raises Refused with what Java threw."""
        answer: Future[Any] = Future()
        assert self.process is not None
        assert self.process.stdin is not None
        with self._lock:
            number = next(self._ids)
            self._asked[number] = answer
            line = json.dumps({"id": number, "command": command, **arguments})
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        try:
            return answer.result(timeout)
        except TimeoutError:
            raise AssertionError(
                f"no answer to {command} in {timeout} s:\n{self.log_tail()}"
            ) from None

    def _take_answers(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            answer = self._asked.pop(message["id"])
            error = message.get("error")
            if error is None:
                answer.set_result(message["result"])
            else:
                kind = KINDS.get(error["code"], error["class"])
                answer.set_exception(Refused(kind, error["message"]))
        for answer in self._asked.values():
            answer.set_exception(AssertionError(f"the driver has ended:\n{self.log_tail()}"))

    def _gone(self, timeout: float) -> int:
        process = self.process
        status = super()._gone(timeout)
        assert process is not None
        if self._reader is not None:
            self._reader.join(10)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        return status


class JavaClient(Client):
    _numbers = itertools.count()

    def __init__(
        self,
        driver: Driver,
        uri: str,
        protocol: str,
        *,
        hangs_alone: bool = False,
        **conf: object,
    ) -> None:
        self.name = f"java-{protocol}"
        self.protocol = protocol
        self._driver = driver.spare() if hangs_alone else driver
        self._hangs_alone = hangs_alone
        self._uri = uri
        self._id = f"client{next(self._numbers)}"
        quick = {
            "readEntryTimeoutSec": 10,
            "addEntryTimeoutSec": 10,
            "zkTimeout": ZOOKEEPER_TIMEOUT_MS,
        }
        settings = {key: str(value) for key, value in {**quick, **conf}.items()}
        self._ask("connect", uri=uri, protocol=protocol, conf=settings)

    def _ask(self, command: str, **arguments: Any) -> Any:
        return self._driver.ask(command, client=self._id, **arguments)

    def _handle(self) -> str:
        return f"handle{next(self._numbers)}"

    def create(
        self,
        e: int = 3,
        wq: int = 3,
        aq: int = 2,
        *,
        digest: str = "CRC32C",
        password: bytes = b"",
        custom: Mapping[str, bytes] | None = None,
        deferred_sync: bool = False,
        adv: bool = False,
        ledger: int | None = None,
    ) -> JavaWriter:
        handle = self._handle()
        created = self._ask(
            "create",
            handle=handle,
            e=e,
            wq=wq,
            aq=aq,
            digest=digest,
            password=_text(password),
            custom={key: _text(value) for key, value in (custom or {}).items()},
            deferredSync=deferred_sync,
            adv=adv,
            ledgerId=ledger,
        )
        return JavaWriter(self._driver, handle, created)

    def open(
        self,
        ledger: int,
        *,
        digest: str = "CRC32C",
        password: bytes = b"",
        recovery: bool = True,
    ) -> JavaReader:
        handle = self._handle()
        self._ask(
            "open",
            handle=handle,
            ledger=ledger,
            digest=digest,
            password=_text(password),
            recovery=recovery,
        )
        return JavaReader(self._driver, handle, ledger)

    def recover(
        self, ledger: int, times: int, *, digest: str = "CRC32C", password: bytes = b""
    ) -> list[int]:
        arguments = {"ledger": ledger, "times": times, "digest": digest}
        return self._ask("recover", **arguments, password=_text(password))

    def delete(self, ledger: int) -> None:
        self._ask("delete", ledger=ledger)

    def ledgers(self) -> list[int]:
        return self._ask("list")

    def metadata(self, ledger: int) -> Metadata:
        found = self._ask("metadata", ledger=ledger)
        found.pop("version")
        found["password"] = b64decode(found["password"])
        found["custom"] = {key: b64decode(value) for key, value in found["custom"].items()}
        found["ensembles"] = {int(first): who for first, who in found["ensembles"].items()}
        return Metadata(**found)

    def bookies(self) -> dict[str, list[str]]:
        """Bookie ids: ``writable``, ``readonly``, ``known`` (by cookie)."""
        return self._ask("bookies")

    def auditor(self) -> str | None:
        """The auditor in office, or None."""
        try:
            return self._ask("auditor")
        except Refused as refusal:
            if "NoNode" not in str(refusal):
                raise
            return None  # nobody has ever stood for election

    def bookie_info(self) -> dict[str, tuple[int, int]]:
        found = self._ask("bookieInfo")
        return {bookie: (info["free"], info["total"]) for bookie, info in found.items()}

    def entries_of(self, bookie: str, ledger: int, end: int) -> list[int]:
        return self._ask("entriesOf", bookie=bookie, ledger=ledger, end=end)["entries"]

    def another(self, *, hangs_alone: bool = False, **settings: object) -> JavaClient:
        conf = {}
        if "explicit_lac_ms" in settings:
            conf["explicitLacInterval"] = settings["explicit_lac_ms"]
        return JavaClient(self._driver, self._uri, self.protocol, hangs_alone=hangs_alone, **conf)

    def suspend(self) -> None:
        assert self._hangs_alone, "other clients live in the same JVM"
        self._driver.suspend()

    def resume(self) -> None:
        self._driver.resume()

    def close(self) -> None:
        self._ask("disconnect")


class JavaWriter(Writer):
    def __init__(self, driver: Driver, handle: str, ledger: int) -> None:
        self.ledger = ledger
        self._driver = driver
        self._handle = handle

    def _ask(self, command: str, **arguments: Any) -> Any:
        return self._driver.ask(command, handle=self._handle, **arguments)

    def append(self, payload: bytes) -> int:
        (entry,) = self._ask("append", payloads=[_text(payload)])
        return entry

    def append_async(self, count: int, size: int, *, first: int = 0, window: int = 1000) -> int:
        arguments = {"count": count, "size": size, "from": first, "window": window}
        answer = self._ask("appendAsync", **arguments, waitMs=50_000)
        for code, entry in answer["results"]:
            if code != 0:
                raise Refused(KINDS.get(code, str(code)), f"entry {entry}")
        entries = [entry for _, entry in answer["results"]]
        assert entries == list(range(entries[0], entries[0] + count))
        return answer["lac"]

    def write(self, entry: int, payload: bytes) -> int:
        return self._ask("write", entry=entry, payload=_text(payload))

    def lac(self) -> int:
        return self._ask("state")["lac"]

    def force(self) -> int:
        return self._ask("force")

    def close(self) -> None:
        self._ask("close")


class JavaReader(Reader):
    def __init__(self, driver: Driver, handle: str, ledger: int) -> None:
        self.ledger = ledger
        self._driver = driver
        self._handle = handle

    def _ask(self, command: str, **arguments: Any) -> Any:
        return self._driver.ask(command, handle=self._handle, **arguments)

    def lac(self) -> int:
        return self._ask("state")["lac"]

    def read_lac(self) -> int:
        return self._ask("readLac")

    def try_read_lac(self) -> int:
        return self._ask("tryReadLac")

    def explicit_lac(self) -> int:
        return self._ask("readExplicitLac")

    def read(self, first: int, last: int) -> Entries:
        return _entries(self._ask("read", first=first, last=last))

    def read_unconfirmed(self, first: int, last: int) -> Entries:
        return _entries(self._ask("readUnconfirmed", first=first, last=last))

    def batch_read(self, first: int, count: int, size: int) -> Entries:
        return _entries(self._ask("batchRead", first=first, count=count, size=size))

    def long_poll(self, entry: int, timeout_ms: int, *, parallel: bool) -> tuple[int, Entries]:
        found = self._ask("longPoll", entry=entry, timeoutMs=timeout_ms, parallel=parallel)
        return found["lac"], _entries([found["entry"]] if found["entry"] else [])


def _text(payload: bytes) -> str:
    return b64encode(payload).decode()


def _entries(found: list[dict[str, Any]]) -> Entries:
    return [(each["entry"], b64decode(each["payload"])) for each in found]
