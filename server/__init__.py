"""The server: FastAPI over an engine that one thread owns.

core/    the engine thread and its asyncio side: admission, streams, the log's window, models
http/    around each request: protocol, access, bodies, errors, the request log
api/     the routes: OpenAI's API, LMTP, the event feed, controls, metrics, the live page
cli/     the console command
client.py, process.py   for notebooks
"""
