"""LMTP, the protocol of LMQL's language model transport: many token streams over one connection.

frames.py    frames, and the bounded queue in which they wait to be sent
calls.py     the fields of a client's frames, and their validation
session.py   one client: its streams, and what each of its frames does
streams.py   one GENERATE or SCORE, from its prompt to its tokens
buffers.py   named token lists of a session, with their prefix locked in the engine's radix tree
routes.py    sessions over a WebSocket;  inprocess.py  over an engine in the same process
client.py    the client for both;  interactive.py  `underglass lmtp`

`docs/lmtp.md` describes the messages.
"""
