"""The disks of a running bookie: state, drain, migration of ledgers, witnesses."""
