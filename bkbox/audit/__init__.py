"""The whole cluster at once: audit, repair by a plan, export and import, reports, on one host or on Spark."""
