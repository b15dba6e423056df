"""One disk: open, checkpoint, dirty marker, identity, replay, rebuild."""
