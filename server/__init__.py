"""The server: FastAPI over an engine that one thread owns.

engine_thread.py  the thread: commands between steps, one report per step
bridge.py         its asyncio side: admission, live requests, drain
models.py         which bridge serves a model; loads further ones with --model auto
generation.py     what one request still has to send, bounded
streaming.py      answering over HTTP while the engine writes
teaching.py       the teaching stream;  openai/  OpenAI's API;  lmtp/  LMTP over a WebSocket
window.py         the log's window;  feed.py  /events and /trace;  operation.py  health, controls
cli.py            the console command;  serve_command.py  its options;  starting.py  from them to:
serving.py        sockets, signals, drain
process.py, client.py  for notebooks
"""
