"""The configuration: its schema, reading and writing it, reloading it in a running bookie, the import of Java's."""
