"""The admin API without a bookie: documents, table of routes, server, client."""
