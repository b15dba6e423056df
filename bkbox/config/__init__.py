"""The configuration: its schema, reading and writing it, what a running bookie takes over, the import of Java's."""
