"""Converts the disks of Apache's bookie to bkbox's (``bkbox takeover``), and back (``bkbox handback``).

Readers and writers of Java's files, one module each, know nothing of bkbox's disks; ``takeover`` and ``handback``
combine them with bkbox's. How it is done, and why a kill at any point loses nothing: docs/takeover.md.
"""
