"""bkbox: an Apache BookKeeper bookie for one host that is safe without a journal."""

__version__ = "0.1.0"
