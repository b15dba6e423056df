"""Bytes of the metadata in ZooKeeper: ledgers, cookies, layout, underreplication."""
