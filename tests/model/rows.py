"""The tables of docs/verification.md, "The limbo model": configurations and what a search of them comes to.

``quick`` rows run in every test run, all of them with ``TESTS_LONG=1``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from bkbox.base.values import replaced
from proof.model.options import (
    AS_PUBLISHED,
    Clearing,
    Corrections,
    Loss,
    Marks,
    Options,
    Status,
)

LONG = os.environ.get("TESTS_LONG") == "1"


@dataclass(frozen=True)
class Row:
    """``outcome``: safe, or what is broken; ``levels``: of a safe end, or states of the trace."""

    name: str
    options: Options
    outcome: str
    levels: int
    distinct: int
    generated: int
    quick: bool = False
    fold: bool = False


SAFE, BROKEN = "safe", "no-divergence"
OPEN, RECOVERING, CLOSED = (Status.OPEN,), (Status.RECOVERING,), (Status.CLOSED,)
BASE = Options()
PUBLISHED = replaced(BASE, corrections=AS_PUBLISHED)


def of(base: Options, marks: str, **changes: object) -> Options:
    """``marks``: whether a boot fences and sets limbo, as two digits."""
    return replaced(base, fence=marks[0] == "1", limbo=marks[1] == "1", **changes)


def corrected(**changes: bool) -> Corrections:
    return replaced(Corrections(), **changes)


AS_PUBLISHED_ROWS = [
    Row("any 11", of(PUBLISHED, "11"), SAFE, 29, 97_065, 269_743, quick=True),
    Row("any 10", of(PUBLISHED, "10"), BROKEN, 17, 38_517, 113_065, quick=True),
    Row("any 01", of(PUBLISHED, "01"), BROKEN, 17, 76_717, 202_124, quick=True),
    Row("any 00", of(PUBLISHED, "00"), BROKEN, 17, 60_988, 163_759, quick=True),
    Row("open 11", of(PUBLISHED, "11", windows=OPEN), SAFE, 28, 51_501, 126_191),
    Row("open 01", of(PUBLISHED, "01", windows=OPEN), SAFE, 28, 67_489, 162_271, quick=True),
    Row("open 10", of(PUBLISHED, "10", windows=OPEN), BROKEN, 17, 34_219, 82_491),
    Row("open 00", of(PUBLISHED, "00", windows=OPEN), BROKEN, 17, 34_692, 81_579),
    Row("recovering 11", of(PUBLISHED, "11", windows=RECOVERING), SAFE, 29, 94_773, 256_795),
    Row("recovering 10", of(PUBLISHED, "10", windows=RECOVERING), BROKEN, 17, 35_661, 102_635),
    Row("recovering 01", of(PUBLISHED, "01", windows=RECOVERING), BROKEN, 17, 57_455, 150_144),
    Row("recovering 00", of(PUBLISHED, "00", windows=RECOVERING), BROKEN, 17, 50_709, 135_669),
    Row("closed 11", of(PUBLISHED, "11", windows=CLOSED), SAFE, 29, 27_545, 66_487),
    Row("closed 10", of(PUBLISHED, "10", windows=CLOSED), SAFE, 29, 27_461, 66_357, quick=True),
    Row("closed 01", of(PUBLISHED, "01", windows=CLOSED), BROKEN, 17, 14_492, 34_582, quick=True),
    Row("closed 00", of(PUBLISHED, "00", windows=CLOSED), BROKEN, 17, 14_488, 34_582, quick=True),
    Row("no crash", of(PUBLISHED, "11", crashes=0), SAFE, 28, 24_029, 58_307, quick=True),
]

CORRECTED_ROWS = [
    Row("A1 no crash", of(BASE, "11", crashes=0), SAFE, 28, 28_397, 69_143, quick=True),
    Row("A1 11", of(BASE, "11"), SAFE, 29, 116_133, 318_455, quick=True),
    Row("A1 10", of(BASE, "10"), BROKEN, 17, 38_279, 110_659, quick=True),
    Row("A1 01", of(BASE, "01"), BROKEN, 17, 75_865, 197_056, quick=True),
    Row("A1 two crashes", of(BASE, "11", crashes=2), SAFE, 30, 273_277, 820_683),
    Row("A2 11", of(BASE, "11", ack_quorum=2), SAFE, 28, 1_954_893, 6_390_539),
    Row("A2 10", of(BASE, "10", ack_quorum=2), BROKEN, 15, 228_322, 736_563),
    Row("A2 01", of(BASE, "01", ack_quorum=2), BROKEN, 15, 422_312, 1_262_258),
    Row("B3 no crash", of(BASE, "11", bookies=3, crashes=0), SAFE, 34, 798_613, 1_890_031),
    Row("B3 11", of(BASE, "11", bookies=3), SAFE, 35, 4_716_637, 13_090_595),
    Row("B3 10", of(BASE, "10", bookies=3), BROKEN, 17, 311_043, 887_920),
    Row("B3 01", of(BASE, "01", bookies=3), BROKEN, 17, 492_846, 1_285_789),
    Row("B3 00", of(BASE, "00", bookies=3), BROKEN, 17, 332_189, 906_757),
]

EARLY = replaced(BASE, ack_quorum=2, corrections=corrected(early_reads=True))
OLD_ANSWERS = corrected(responses_have_ids=False)
W3_A2 = replaced(BASE, bookies=3, write_quorum=3, ack_quorum=2)
DURABLE = replaced(BASE, durable_fence=True)
COPIES = replaced(BASE, bookies=3, clients=1, copies=True, marks=Marks.NAMED)

VARIANT_ROWS = [
    Row("marks not closed", replaced(BASE, marks=Marks.NOT_CLOSED), BROKEN, 17, 48_838, 133_838),
    Row(
        "marks not closed, B3",
        replaced(BASE, marks=Marks.NOT_CLOSED, bookies=3),
        BROKEN,
        17,
        363_807,
        1_007_293,
    ),
    Row("durable fence", of(DURABLE, "01"), SAFE, 29, 132_661, 355_723, quick=True),
    Row(
        "durable fence, cleared after close",
        of(DURABLE, "01", clearing=Clearing.AFTER_CLOSE),
        SAFE,
        30,
        140_741,
        376_591,
    ),
    Row(
        "durable fence, cleared after close, A2",
        of(DURABLE, "01", ack_quorum=2, clearing=Clearing.AFTER_CLOSE),
        SAFE,
        29,
        2_256_145,
        7_351_575,
    ),
    Row("durable fence, no limbo", of(DURABLE, "00"), BROKEN, 17, 38_736, 109_731, quick=True),
    Row(
        "cleared at any time",
        replaced(BASE, clearing=Clearing.ANY_TIME),
        BROKEN,
        18,
        86_291,
        248_060,
        quick=True,
    ),
    Row(
        "cleared after close",
        replaced(BASE, clearing=Clearing.AFTER_CLOSE),
        SAFE,
        30,
        124_245,
        339_335,
        quick=True,
    ),
    Row("unnoticed", replaced(BASE, unnoticed=True), BROKEN, 17, 91_898, 252_428, quick=True),
    Row("process", of(BASE, "00", loss=Loss.PROCESS), SAFE, 29, 57_825, 196_127, quick=True),
    Row("disk", replaced(BASE, loss=Loss.DISK), SAFE, 29, 145_461, 444_989),
    Row("device", replaced(BASE, loss=Loss.DEVICE), SAFE, 29, 116_133, 318_455, quick=True),
    Row(
        "device, boot id alone",
        replaced(BASE, loss=Loss.DEVICE, mounts=False),
        BROKEN,
        17,
        38_736,
        109_731,
        quick=True,
    ),
    Row("copies", COPIES, SAFE, 18, 11_349, 24_225, quick=True),
    Row(
        "copies, not in limbo",
        replaced(COPIES, records=False),
        "copies",
        9,
        2_132,
        3_621,
        quick=True,
    ),
    Row("early reads 10", of(EARLY, "10"), BROKEN, 15, 322_492, 1_015_736),
    Row("early reads 01", of(EARLY, "01"), BROKEN, 15, 585_867, 1_724_716),
]

EXHAUSTED_ROWS = [
    Row("early reads 11", EARLY, SAFE, 28, 12_373_869, 50_936_687),
    Row(
        "two entries, answers without ids",
        replaced(BASE, sends=2, corrections=OLD_ANSWERS),
        SAFE,
        43,
        31_951_569,
        101_903_339,
    ),
]

FOLDED_ROWS = [
    Row("any 11", PUBLISHED, SAFE, 29, 24_387, 68_041, quick=True, fold=True),
    Row("A2 11", of(BASE, "11", ack_quorum=2), SAFE, 28, 488_844, 1_598_240, fold=True),
    Row("early reads 11", EARLY, SAFE, 28, 3_093_588, 12_734_777, fold=True),
    Row("two entries", replaced(BASE, sends=2), SAFE, 43, 15_260_353, 49_430_198, fold=True),
    Row(
        "two entries, answers without ids",
        replaced(BASE, sends=2, corrections=OLD_ANSWERS),
        SAFE,
        43,
        7_989_013,
        25_482_035,
        fold=True,
    ),
    Row(
        "B3 W3 A2 closed 01, answers without ids",
        of(W3_A2, "01", windows=CLOSED, corrections=OLD_ANSWERS),
        BROKEN,
        19,
        632_691,
        2_160_503,
        fold=True,
    ),
    Row(
        "B3 W3 A2 no crash", replaced(W3_A2, crashes=0), SAFE, 36, 6_230_785, 24_543_544, fold=True
    ),
    Row("B3 W3 A2 11", W3_A2, SAFE, 37, 39_390_779, 163_652_227, fold=True),
    Row(
        "B3, bkbox's marks",
        replaced(BASE, bookies=3, marks=Marks.NAMED),
        SAFE,
        35,
        2_943_273,
        7_883_655,
        fold=True,
    ),
    Row(
        "B3, bkbox's marks, cleared after close",
        replaced(BASE, bookies=3, marks=Marks.NAMED, clearing=Clearing.AFTER_CLOSE),
        SAFE,
        36,
        3_207_809,
        8_648_151,
        fold=True,
    ),
    Row(
        "A2, cleared after close",
        replaced(BASE, ack_quorum=2, clearing=Clearing.AFTER_CLOSE),
        SAFE,
        29,
        501_414,
        1_633_837,
        fold=True,
    ),
    Row(
        "A2, two crashes",
        replaced(BASE, ack_quorum=2, crashes=2),
        SAFE,
        29,
        1_232_511,
        4_282_101,
        fold=True,
    ),
]

DEFECT_ROWS = [
    Row(
        "recovery reads do not fence",
        replaced(BASE, ack_quorum=2, crashes=0, recovery_reads_fence=False),
        BROKEN,
        14,
        19_320,
        51_934,
        quick=True,
        fold=True,
    ),
    Row(
        "recovery reads do not fence, B3 W3",
        replaced(
            BASE,
            bookies=3,
            write_quorum=3,
            ack_quorum=2,
            crashes=0,
            recovery_reads_fence=False,
        ),
        BROKEN,
        18,
        394_002,
        1_293_576,
        fold=True,
    ),
    Row(
        "no LAC floor",
        replaced(BASE, bookies=3, crashes=0, lac_floor=False),
        "fragments",
        21,
        66_918,
        151_743,
        quick=True,
        fold=True,
    ),
]

ROWS = [
    *(("as published", row) for row in AS_PUBLISHED_ROWS),
    *(("corrected", row) for row in CORRECTED_ROWS),
    *(("variant", row) for row in VARIANT_ROWS),
    *(("exhausted", row) for row in EXHAUSTED_ROWS),
    *(("folded", row) for row in FOLDED_ROWS),
    *(("defect", row) for row in DEFECT_ROWS),
]
