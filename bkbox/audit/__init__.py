"""Audit of a whole cluster: inspection, repair by a plan, export and import, reports; on one host or on Spark."""
