"""The protocol core: quorums, writer, reader and recovery machines, planning of boot and repair.

Everything here is pure: events in (events.py), effects out (effects.py), no I/O, no clock, no randomness, no task.
The asyncio client and the simulator drive the same machines. A driver carries the effects out in order and completes
every request token exactly once.
"""
