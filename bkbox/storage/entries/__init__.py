"""Entry log and index together: append, look up, read, replay."""
