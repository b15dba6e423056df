"""What Linux tells about the host, read from /proc and /sys: facts, no judgement on them."""
