"""Settings with which an engine reads a replica, and writes beside it."""
