"""A proxy that records the request bodies that a client sends.

`python -m tests.clients --record guidellm` writes them to `tests/fixtures/clients/guidellm.jsonl`: one
line for each path and set of fields, with the body that was sent first. The test suite sends them
again, so that a client is tested where it is not installed.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

RECORDED = Path(__file__).parents[1] / "fixtures" / "clients"
_LONGEST = 4_000  # characters of a body that is worth keeping


class Recorder:
    """Forwards every request to a server and keeps the bodies that it answered with success."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.bodies: dict[str, dict[str, Any]] = {}

    async def forward(self, request: Request) -> StreamingResponse:
        content = await request.body()
        client = httpx.AsyncClient(base_url=self.url, timeout=None, trust_env=False)
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = [(k, v) for k, v in request.headers.raw if k not in (b"host", b"connection")]
        sent = client.build_request(request.method, target, headers=headers, content=content)
        sending = asyncio.create_task(client.send(sent, stream=True))
        while not (await asyncio.wait([sending], timeout=0.02))[0]:
            if await request.is_disconnected():  # then the server must see it, too
                sending.cancel()
                await client.aclose()
                return StreamingResponse(iter([b""]), 499)
        answer = sending.result()
        if request.method == "POST" and answer.status_code == 200:
            self._keep(request.url.path, content)

        async def pieces() -> AsyncIterator[bytes]:
            try:
                async for piece in answer.aiter_raw():
                    yield piece
            finally:
                await client.aclose()

        kept = {
            k: v for k, v in answer.headers.items() if k not in ("date", "server", "connection")
        }
        return StreamingResponse(pieces(), answer.status_code, kept)

    def _keep(self, path: str, content: bytes) -> None:
        if path.startswith("/v1/") and len(content) <= _LONGEST:
            body = json.loads(content)
            self.bodies.setdefault(_shape(path, body), {"path": path, "body": body})

    def save(self, client: str) -> None:
        """Write the bodies, one JSON object per line."""
        RECORDED.mkdir(exist_ok=True)
        lines = [json.dumps(one) for _, one in sorted(self.bodies.items())]
        (RECORDED / f"{client}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def _shape(path: str, body: dict[str, Any]) -> str:
    """Return what makes two bodies the same for a test: their path, fields and kinds of values."""
    kinds = {
        name: value if isinstance(value, bool) else type(value).__name__
        for name, value in body.items()
    }
    return json.dumps([path, kinds], sort_keys=True)


@contextmanager
def recorder(url: str) -> Iterator[tuple[str, Recorder]]:
    """Run a recording proxy in front of a server; yields the proxy's address and its recorder."""
    record = Recorder(url)
    app = Starlette(routes=[Route("/{path:path}", record.forward, methods=["GET", "POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=asyncio.run, args=(server.serve(),), daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", record
    finally:
        server.should_exit = True
        thread.join()
