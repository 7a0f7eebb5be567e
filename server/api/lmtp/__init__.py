"""LMTP, the protocol of LMQL's language model transport: many token streams over one connection.

wire.py      frames: a word, a space, JSON
calls.py     what a client's frames carry, checked;  prompts.py  their prompts as token ids
session.py   one client: its streams and what becomes of each frame
streams.py   a stream: a request of the engine on its way back as tokens
buffers.py   tokens kept under a name, their prefix locked in the engine's tree
outlet.py    what waits to leave through one connection, bounded
routes.py    sessions over a WebSocket;  inprocess.py  over an engine in the same process
client.py    the other end of either;  interactive.py  `underglass lmtp`

The messages are in `docs/lmtp.md`.
"""
