"""Mutation of the pure protocol: whether its unit tests notice a wrong line (``python -m tests.mutation``)."""
