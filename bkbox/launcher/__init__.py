"""Starts bkbox on this host: commands and bookies on loopback, which end with the process that started them."""
