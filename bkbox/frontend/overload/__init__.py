"""Bounds on what connections cost: memory, time, CPU, errors."""
