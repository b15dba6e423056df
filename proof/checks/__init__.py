"""The properties that must hold, one a file: the same for the model, the simulator and runs of real processes.

A check does not depend on its observer: it is fed with plain values and returns a ``Violation``, or nothing.
"""
