"""Pages on loopback: `underglass open`, `underglass listen`, and a notebook's `watch` of a file."""
