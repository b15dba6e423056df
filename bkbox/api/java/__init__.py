"""The HTTP paths of Apache's bookie."""
