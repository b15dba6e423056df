"""The plan that a seed determines before a run begins."""
