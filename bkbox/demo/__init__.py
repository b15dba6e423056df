"""``bkbox demo``: three real bookies on this machine, broken in front of you, and all data read back."""
