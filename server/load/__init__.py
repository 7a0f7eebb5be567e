"""A load client: an open loop over raw sockets, for `underglass sweep` and `benchmarks/load`.

client.py     one request on a connection of its own: bytes and times
open_loop.py  start requests at their scheduled times, whatever has been answered
endpoint.py   an OpenAI-compatible server as the target of a sweep
"""
