"""Apache Spark on ledgers: ``spark.read``, ``readStream``, ``write`` and ``writeStream`` with ``format("bookkeeper")``.

Spark finds the format because this package is installed: it looks for ``DefaultSource`` in top-level packages whose
name begins with ``pyspark_``. If that is switched off:
``spark.dataSource.register(pyspark_bookkeeper.DefaultSource)``. Usage: docs/spark.md.
"""

from pyspark_bookkeeper.source import DefaultSource

__all__ = ["DefaultSource"]
