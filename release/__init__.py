"""The files of a release, made into ``dist/``: ``python -m release``, which ``make release`` runs.

Everything is made from the source distribution of the last commit: what it lacks, no package has. It is a program of a
checkout and in no wheel.
"""
