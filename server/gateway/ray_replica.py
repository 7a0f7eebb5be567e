"""One replica: a Ray actor that runs `underglass serve` and reports its health.

The actor starts the server as a process of its own, by the command `underglass serve`. So a replica has
every route and limit of a single server, and Ray's threads do not share the interpreter lock with its
tokens. Ray places the actor, asks for its health, replaces it and stops it; it never sees a token.

In whatever way the actor ends, the server's stdin closes and the server stops. When the server ends
first, the actor ends with it, so that Ray replaces both.

Differs from vLLM's and SGLang's Ray executors: they make an actor of each GPU worker of one engine. Ray
Serve LLM makes an actor of each engine, too, and sends tokens through Ray.
"""

import asyncio
import json
import math
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.request import ProxyHandler, Request, build_opener

from ray.serve._private import replica as serve_replica
from ray.util import get_node_ip_address

from server.process import BackgroundServer
from underglass import child

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext

_ANSWER_SECONDS = 5.0  # how long the actor waits for an answer of the server
_bind = serve_replica.add_port_to_grpc_server
# A load balancer or a proxy in the environment must not get between the actor and its server.
_open = build_opener(ProxyHandler({})).open


class EngineReplica:
    """The actor. `environment` has the server's options, as `UNDERGLASS_...` variables."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = get_node_ip_address()
        # Serve opens a port for calls between deployments, on all interfaces. This deployment has no
        # such calls.
        serve_replica.add_port_to_grpc_server = lambda server, _: _bind(server, f"{address}:0")
        for name in [name for name in os.environ if name.startswith("UNDERGLASS_")]:
            del os.environ[name]  # the command's own, such as UNDERGLASS_REPLICAS
        os.environ.update(environment, UNDERGLASS_HOST=address)
        key = environment.get("UNDERGLASS_API_KEY")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._server = BackgroundServer(child.python("underglass", "serve"))
        self._stopping = False
        threading.Thread(target=self._end_with_server, daemon=True).start()

    def record_replica_metadata(self) -> dict[str, Any]:
        """Return what Serve tells every gateway about this replica: the address of its server."""
        return {"url": self._server.url, "pid": self._server.process.pid}

    async def check_health(self) -> None:
        """Raise an exception if the engine is stuck or has failed. Serve replaces the replica then."""
        await self._get("/ping")

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the unfinished requests, which Serve sends to `replicas_for_load`."""
        return {"unfinished": (await self._get("/load"))["server_load"]}

    async def __del__(self) -> None:
        """Let the running requests finish. Serve calls this when it stops the replica."""
        self._stopping = True
        self._server.process.terminate()
        await asyncio.to_thread(self._server.process.wait)

    async def _get(self, path: str) -> Any:
        request = Request(self._server.url + path, headers=self._headers)
        answer = await asyncio.to_thread(_open, request, timeout=_ANSWER_SECONDS)
        with answer:
            return json.load(answer)

    def _end_with_server(self) -> None:
        self._server.process.wait()
        if not self._stopping:
            os._exit(1)  # Ray notices this at its next health check, within a second


def replicas_for_load(context: "AutoscalingContext") -> tuple[int, dict[str, Any]]:
    """Return how many replicas the unfinished requests need, each with a full batch.

    Serve's own policy counts requests that Ray carries; ours travel over HTTP, so each replica counts
    its own. Serve calls this ten times a second, averages the counts over a window, keeps the result
    within the limits, and waits before it acts.
    """
    unfinished = context.aggregated_metrics.get("unfinished", {}).values()
    assert context.config is not None
    return math.ceil(sum(unfinished) / context.config.get_target_ongoing_requests()), {}
