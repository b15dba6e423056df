"""A whole cluster in one thread, decided by one seed: ``bkbox sim``."""
