"""Iterators that a program keeps, or leaves by Ctrl-C: nothing is said at the end, and the client goes on."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

STORED = """
    import asyncio, random, sys
    sys.path[:0] = {path!r}
    from pathlib import Path
    from tests.client.tinybookie import cluster
    from bkbox.client import Client, ClientOptions
    from bkbox.client.log import Log

    kept = []

    async def main():
        async with cluster(Path({folder!r})) as made:
            client = Client(made.store, ClientOptions(), random.Random(1))
            for sizes in ((3, 3, 2), (3, 2, 2)):
                writer = await client.create_ledger(*sizes)
                await writer.append_many([bytes(1000)] * 3000)
                await writer.close()
                reader = await client.open_ledger(writer.ledger_id)
                open_writer = await client.create_ledger(*sizes)
                for _ in range(10):
                    await open_writer.append(b"x")
                follower = await client.open_ledger(open_writer.ledger_id, recovery=False)
                async with await Log(client, "orders").open_writer() as log:
                    await log.append_many([b"y"] * 100)
                for make in (
                    reader.read,
                    reader.tail,
                    reader.read_batches,
                    follower.tail,
                    lambda: reader.read_unconfirmed(0, 2000),
                    Log(client, "orders").read,
                    Log(client, "orders").tail,
                    client.ledgers,
                    lambda: client.watch(writer.ledger_id),
                ):
                    iterator = aiter(make())
                    await anext(iterator)
                    kept.append(iterator)
                    dropped = aiter(make())
                    await anext(dropped)
                await open_writer.close()
            if {close!r}:
                await client.close()
            else:
                kept.append(client)
                client._binding.closed = True  # that it was not closed is another warning

    asyncio.run(main())
    """


@pytest.mark.parametrize("close", [True, False])
def test_iterators_that_are_kept(tmp_path: Path, close: bool) -> None:
    done = run(STORED.format(path=sys.path, folder=str(tmp_path), close=close))
    assert (done.returncode, done.stderr) == (0, "")


KEPT_AND_BLOCKING = """
    import sys
    sys.path[:0] = {path!r}
    from pathlib import Path
    from tests.client.tinybookie import bookies
    from bkbox.client import sync

    with bookies(Path({folder!r})) as made:
        with sync.connect(made.uri) as client:
            with client.create_ledger() as writer:
                writer.append_many([bytes(1000)] * 3000)
            reader = client.open_ledger(writer.ledger_id)
            with client.log("orders").open_writer() as log:
                log.append_many([b"y"] * 100)
            kept = [reader.read(), reader.tail(), client.log("orders").tail(), client.ledgers(), client.watch(0)]
            for each in kept:
                next(each)
        for each in kept:
            try:
                while True:
                    next(each)
            except Exception as error:
                print(type(error).__name__)
    """


def test_iterators_of_the_synchronous_client_that_are_kept(tmp_path: Path) -> None:
    done = run(KEPT_AND_BLOCKING.format(path=sys.path, folder=str(tmp_path)))
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) <= {"HandleClosedError", "StopIteration"}
    assert done.stdout.count("HandleClosedError") >= 3


INTERRUPTED = """
    import random, signal, sys, threading, time
    sys.path[:0] = {path!r}
    from pathlib import Path
    from tests.client.tinybookie import bookies
    from bkbox.client import sync

    def interrupts(iterate):
        # In a moment, wherever the main thread is then.
        begun = threading.Event()

        def hit():
            begun.wait()
            time.sleep(random.random() * 0.02)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        thread = threading.Thread(target=hit)
        thread.start()
        try:
            iterate(begun)
            thread.join()
            time.sleep(1)
        except KeyboardInterrupt:
            return
        finally:
            thread.join()
        raise AssertionError("nobody was interrupted")

    def for_ever(make):
        def iterate(begun):
            while True:
                for each in make():
                    begun.set()
        return iterate

    with bookies(Path({folder!r})) as made, sync.connect(made.uri) as client:
        with client.create_ledger() as writer:
            writer.append_many([bytes(100)] * 2000)
        reader = client.open_ledger(writer.ledger_id)
        growing = client.create_ledger()
        for _ in range(2):
            growing.append(b"x")
        follower = client.open_ledger(growing.ledger_id, recovery=False)
        with client.log("orders").open_writer() as log:
            log.append_many([b"z"] * 10)
        for make in (
            follower.tail,
            reader.read,
            client.log("orders").tail,
            client.log("orders").read,
            client.ledgers,
            lambda: client.watch(writer.ledger_id),
        ):
            for _ in range(6):
                interrupts(for_ever(make))
            assert len(list(reader.read())) == 2000
        growing.append(b"after")
        growing.close()
    print("whole")
    """


def test_iterations_that_are_interrupted(tmp_path: Path) -> None:
    done = run(INTERRUPTED.format(path=sys.path, folder=str(tmp_path)))
    assert (done.stdout, done.stderr, done.returncode) == ("whole\n", "", 0)


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
