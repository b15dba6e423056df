"""Facts about the host, read from /proc and /sys of Linux, without judgement."""
