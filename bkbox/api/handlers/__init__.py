"""What the admin API of a bookie answers, by what is asked about."""
