"""Commands on all data of a cluster: audit, repair, export, import."""
