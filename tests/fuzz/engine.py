"""Inputs by mutation, without knowing the code: what every Python can do, and the same inputs for the same seed.

Each input is one of the corpus with a few changes. One that comes to something new (what ``check`` returns) joins the
corpus. ``python -m tests.fuzz.engine TARGET …`` is what the command of this package starts, a process for each
target, so that one that dies leaves its last input behind.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import mmap
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

import psutil

from tests.fuzz.target import Target

INPUT_BYTES_MAX = 4096
HANG_S = 60
"""So many inputs as are between two looks at the clock (``_LOOK``) take seconds at most."""

_LOOK = 256
_CORPUS_MAX = 2000
_BY_SIZE = {
    1: (0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x22),
    2: (0, 1, 0xFF, 0x7FFF, 0x8000, 0xFFFF),
    4: (0, 1, 24, 0xFFFF, 0x7FFFFFFF, 0x80000000, -1, -2, 5_242_880),
    8: (0, 1, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, -1, -2),
}
_NUMBERS = [b"\xff" * 9 + b"\x01", b"\x80" * 9 + b"\x01", b"\n", b"\t", b'"', b"\xc3\x28"] + [
    number.to_bytes(size, "big", signed=number < 0)
    for size, numbers in _BY_SIZE.items()
    for number in numbers
]


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that ``check`` has raised for, and its traceback."""

    data: bytes
    text: str


@dataclass(slots=True)
class Report:
    """What came of a run: ``rss`` before and after, in MiB."""

    target: str
    inputs: int = 0
    seconds: float = 0.0
    corpus: int = 0
    rss: tuple[float, float] = (0.0, 0.0)
    findings: list[Finding] = field(default_factory=list)


class Mutator:
    """Changes inputs; ``corpus`` has at least one."""

    def __init__(self, corpus: list[bytes], random: Random) -> None:
        self.corpus = corpus
        self._random = random

    def next(self) -> bytes:
        """One of the corpus, changed."""
        chance = self._random
        data = bytearray(chance.choice(self.corpus))
        for _ in range(1 << chance.getrandbits(2)):
            self._change(data)
        return bytes(data[:INPUT_BYTES_MAX])

    def _change(self, data: bytearray) -> None:
        chance = self._random
        at = int(chance.random() * (len(data) + 1))
        match chance.getrandbits(3):
            case 0 if at < len(data):
                data[at] ^= 1 << chance.getrandbits(3)
            case 1 if at < len(data):
                data[at] = chance.getrandbits(8)
            case 2 if at < len(data):
                data[at] = (data[at] + chance.choice((-1, 1, 2, 16))) & 0xFF
            case 3:
                number = chance.choice(_NUMBERS)
                data[at : at + len(number)] = number
            case 4:
                data[at:at] = chance.choice(_NUMBERS)
            case 5:
                del data[at : at + 1 + int(chance.random() ** 4 * len(data))]
            case 6:
                end = at + 1 + int(chance.random() ** 4 * 64)
                data[at:at] = data[at:end]
            case _:
                other = chance.choice(self.corpus)
                start = int(chance.random() * (len(other) + 1))
                data[at:] = other[start:]


def run(
    target: Target, inputs: int, seed: int, more: list[bytes] | None = None, box: Box | None = None
) -> Report:
    """So many inputs, the seeds among them; ends early after ten findings. ``more``: inputs to begin with, too."""
    report = Report(target.name)
    seeds = [*target.seeds(), *(more or [])]
    mutator = Mutator(seeds[:], Random(seed))
    seen: dict[int, None] = {}
    begun = time.perf_counter()
    process = psutil.Process()
    before = 0.0
    for number in range(inputs):
        if number % _LOOK == 0 and box is not None:
            faulthandler.dump_traceback_later(HANG_S, exit=True)
        if number == min(inputs // 10, 20_000):
            before = process.memory_info().rss / (1 << 20)
        data = seeds[number] if number < len(seeds) else mutator.next()
        if box is not None:
            box.keep(data)
        try:
            way = hash(repr(target.check(data)))
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
            report.findings.append(Finding(data, traceback.format_exc()))
            if len(report.findings) == 10:
                break
            continue
        finally:
            report.inputs += 1
        if way not in seen and len(mutator.corpus) < _CORPUS_MAX:
            seen[way] = None
            if number >= len(seeds):
                mutator.corpus.append(data)
    faulthandler.cancel_dump_traceback_later()
    report.seconds = time.perf_counter() - begun
    report.corpus = len(mutator.corpus)
    report.rss = before, process.memory_info().rss / (1 << 20)
    return report


class Box:
    """The last input, in a file that survives the process."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(4 + (1 << 16)))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def keep(self, data: bytes) -> None:
        self._memory[:4] = len(data).to_bytes(4)
        self._memory[4 : 4 + len(data)] = data

    @staticmethod
    def read(path: Path) -> bytes:
        """What the last process to use it has left."""
        data = path.read_bytes()
        return data[4 : 4 + int.from_bytes(data[:4])]


def main() -> None:
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--inputs", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--box", type=Path, required=True)
    given = parser.parse_args()
    logging.disable()
    more = []
    if given.corpus is not None and given.corpus.is_dir():
        more = [path.read_bytes() for path in sorted(given.corpus.iterdir())]
    report = run(TARGETS[given.target], given.inputs, given.seed, more, Box(given.box))
    fields = asdict(report)
    fields["findings"] = [[finding.data.hex(), finding.text] for finding in report.findings]
    json.dump(fields, sys.stdout)


if __name__ == "__main__":
    main()
