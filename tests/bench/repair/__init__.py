"""How fast a lost disk, and a lost bookie, are made good: bkbox beside Apache's own, on the same ledgers."""
