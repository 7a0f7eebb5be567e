"""The server: a FastAPI app and an engine that one thread owns.

core/    the engine thread and its asyncio side: admission, streams, the log window, models
http/    handling common to all requests: protocol, access, bodies, errors, the request log
api/     the routes: OpenAI's API, LMTP, the event feed, controls, metrics, the live page
gateway/ all routes of one server over several replicas
pages/   the files of the live page
client.py, process.py   a client and a background server for notebooks
"""
