"""What somebody who helps from afar wants to see of a bookie, in one file, without its secrets."""
