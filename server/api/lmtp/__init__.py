"""LMTP, the protocol of LMQL's language model transport: many token streams over one connection.

messages.py  frames, the fields of a client's frames, and their validation
session.py   one client: its WebSocket, its streams, the handling of its frames, its send queue
streams.py   one GENERATE or SCORE, from its prompt to its tokens
buffers.py   named token lists of a session, with their prefix locked in the engine's radix tree
client.py    the client
inprocess.py  the same client for an engine in this process
interactive.py  `underglass lmtp`

`docs/lmtp.md` describes the messages.
"""
