"""The tools that prove bkbox: model, simulator and chaos, and the properties that they share.

They are part of a checkout and of no wheel: ``proof`` imports ``bkbox``, never the other way round.
"""
