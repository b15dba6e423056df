"""The bookie towards its host: systemd, mDNS, service info, progress of children."""
