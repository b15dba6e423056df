"""What must hold, one property a file: the same for the model, the simulator and runs of real processes.

Nothing here knows who observes: a check is fed with plain values and answers with a ``Violation``, or with nothing.
"""
