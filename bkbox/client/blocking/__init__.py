"""The client for callers without an event loop: it runs the asyncio client on a thread."""
