"""Test-only: switches one safety measure of a bookie off, in every process of it, or keeps it in a state that passes.

Python imports a module of this name at its start. Tests put this folder on PYTHONPATH and name the measure in
UNSAFE_BOOKIE; bkbox itself has no trace of it. The failure without a measure shows what the measure is for.
"""

import os

_MEASURES = os.environ.get("UNSAFE_BOOKIE", "").split(",")

if "no-fence-on-boot" in _MEASURES or "no-limbo" in _MEASURES:
    from bkbox.base.values import replaced
    from bkbox.protocol import boot

    _mark_for = boot.mark_for

    def _weaker_mark_for(metadata, bookie, **evidence):
        mark = _mark_for(metadata, bookie, **evidence)
        if mark is None:
            return None
        return replaced(
            mark,
            fence=mark.fence and "no-fence-on-boot" not in _MEASURES,
            limbo=mark.limbo and "no-limbo" not in _MEASURES,
        )

    boot.mark_for = _weaker_mark_for

if "no-fence-on-boot" in _MEASURES:
    from bkbox.bookie import admission
    from bkbox.bookie.admission import LedgerStatus, Request, Verdict
    from bkbox.wire.codes import Code

    admission.ADMISSION[LedgerStatus.LIMBO, Request.ADD] = Verdict(Code.EOK, LedgerStatus.LIMBO)

if "stays-active" in _MEASURES:
    from bkbox.bookie.active import ActiveLedgers

    # However long the test takes to cut the power: the ledgers still count as written without a sync.
    ActiveLedgers.pop_idle = lambda _self: []
