"""Serve pages on loopback for `underglass open`, `underglass listen`, and `watch` of a file."""
