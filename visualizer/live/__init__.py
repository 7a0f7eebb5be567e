"""Follow a log that is still being written: a server, a growing file or KV events.

A notebook has a widget (`watch`); `underglass open` and `underglass listen` serve a page on loopback.
The translation of each kind of source into events is in `visualizer/sources`.
"""
