"""Every check of a bookie, its disks and its host, once; and the views that select from them.

``registry.py`` lists the checks; ``bookie.py``, ``host.py``, ``configuration.py``, ``disk.py``, ``cluster.py`` and
``replicas.py`` carry them out over what they are given; ``warnings.py``, ``health.py`` and ``doctor.py`` are the views.
"""
