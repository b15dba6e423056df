"""Commands on logs: append, read, follow, forget."""
