"""One replica: a Ray actor that runs `underglass serve` and reports its health.

The actor starts the server as a process of its own, by the command `underglass serve`. So a replica has
every route and limit of a single server, and Ray's threads do not share the interpreter lock with its
tokens. Ray places the actor, asks for its health, replaces it and stops it; it never sees a token.

Each process has one other that starts it again:

    engine's process   the server starts it again, once a minute at most, or ends (`core/models.py`)
    server             the actor starts it again in its place: the replica keeps its id and its address
    actor              Ray starts another replica

The actor also ends a server whose engine is stuck or has failed for a few seconds, or that no longer
answers. An engine that the server is just starting again is no reason for that. The actor ends itself
if its server cannot be started again, or ends within seconds again and again.

However the actor ends, the server's stdin closes, and the server stops after its running requests. If
the gateway has started Ray on its own machine, the server's stdin is a lifeline that the gateway holds,
too: the server serves on until another replica has taken its place, even if all of Ray is dead.

Differs from vLLM's and SGLang's Ray executors: they make an actor of each GPU worker of one engine. Ray
Serve LLM makes an actor of each engine, too, and sends tokens through Ray.
"""

import asyncio
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from ray.serve._private import replica as serve_replica
from ray.util import get_node_ip_address

from server.gateway.warm import SERVER, Warm
from server.process import BackgroundServer, ServerError
from underglass import child

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext

_ANSWER_SECONDS = 5.0  # how long the actor waits for an answer of the server
# For how long an engine may be stuck or have failed, and a server may not answer, before it is ended.
_FAILED_SECONDS, _SILENT_SECONDS = 3.0, 20.0
# A server that has ended so often in a row, sooner after its start than this, will do so again.
_SHORT_RUNS, _SHORT_SECONDS = 5, 5.0
_bind = serve_replica.add_port_to_grpc_server
# A load balancer or a proxy in the environment must not get between the actor and its server.
_open = build_opener(ProxyHandler({})).open


class EngineReplica:
    """The actor.

    environment  the server's options, as `UNDERGLASS_...` variables
    lifelines    a directory of this machine in which the gateway finds the server's lifeline; None if
                 the gateway may run elsewhere
    """

    def __init__(self, environment: Mapping[str, str], lifelines: str | None) -> None:
        address = get_node_ip_address()
        # Serve opens a port for calls between deployments, on all interfaces. This deployment has no
        # such calls.
        serve_replica.add_port_to_grpc_server = lambda server, _: _bind(server, f"{address}:0")
        for name in [name for name in os.environ if name.startswith("UNDERGLASS_")]:
            del os.environ[name]  # the command's own, such as UNDERGLASS_REPLICAS
        os.environ.update(environment, UNDERGLASS_HOST=address)
        key = environment.get("UNDERGLASS_API_KEY")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        # This process holds the other end of the servers' stdin until it ends.
        if lifelines is None:
            self._lifeline = ""
            self._stdin, _ = os.pipe()
        else:
            self._lifeline = f"{lifelines}/lifeline-{os.getpid()}"
            os.mkfifo(self._lifeline, 0o600)
            os.open(self._lifeline, os.O_RDWR)
            self._stdin = os.open(self._lifeline, os.O_RDONLY)
        self._warm = Warm(*SERVER) if sys.platform == "linux" else None
        self._start_server()
        os.environ["UNDERGLASS_PORT"] = self._server.url.rpartition(":")[2]  # from now on
        self._unfinished = 0.0
        self._stopping = False
        threading.Thread(target=self._keep_running, daemon=True).start()

    def _start_server(self) -> None:
        self._server = _Server(self._stdin, self._warm)
        self._started = self._well = time.monotonic()

    def record_replica_metadata(self) -> dict[str, Any]:
        """Return what Serve tells every gateway about this replica, see `ray_cluster.Server`."""
        return {"url": self._server.url, "lifeline": self._lifeline}

    async def check_health(self) -> None:
        """Look after the server. All that Serve has to know is that the actor answers."""
        server, now = self._server, time.monotonic()
        try:
            await self._get("/ping")
        except HTTPError as error:
            restarting = json.load(error)["error"]["code"] == "engine_died"
            patience = math.inf if restarting else _FAILED_SECONDS
        except OSError:
            patience = _SILENT_SECONDS
        else:
            self._well, patience = now, math.inf
        if now - self._well > patience and server is self._server:
            server.process.kill()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the unfinished requests, which Serve sends to `replicas_for_load`."""
        with suppress(OSError):  # it is being started again
            self._unfinished = (await self._get("/load"))["server_load"]
        return {"unfinished": self._unfinished}

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

    def _keep_running(self) -> None:
        """Start the server again whenever it ends; end the actor if that does not help."""
        short = 0  # how often in a row it has ended soon after its start
        while True:
            self._server.process.wait()
            if self._stopping:
                return
            short = short + 1 if time.monotonic() - self._started < _SHORT_SECONDS else 0
            self._server.stop()
            try:
                if short < _SHORT_RUNS:
                    self._start_server()
                    continue
            except ServerError as error:
                print(f"The server cannot be started again: {error}", file=sys.stderr)
            os._exit(1)  # Ray notices this at its next health check, within a second


class _Server(BackgroundServer):
    """A server that ends with its stdin; `warm` forks it."""

    def __init__(self, stdin: int, warm: Warm | None) -> None:
        self._stdin, self._warm = stdin, warm
        super().__init__(child.python("underglass", "serve"))

    def _launch(self, command: Sequence[str], _stdin: int = subprocess.PIPE) -> Any:
        if self._warm is None:
            return super()._launch(command, self._stdin)
        ours, its = os.pipe()
        try:
            files = [self._stdin, its, self._errors.fileno()]
            process = self._warm.fork("underglass.commands:main", ["serve"], files)
        except OSError:  # the warm process has ended
            self._warm = None
            return super()._launch(command, self._stdin)
        finally:
            os.close(its)
        process.stdout = os.fdopen(ours, "rb")
        return process


def replicas_for_load(context: "AutoscalingContext") -> tuple[int, dict[str, Any]]:
    """Return how many replicas the unfinished requests need, each with a full batch.

    Serve's own policy counts requests that Ray carries; ours travel over HTTP, so each replica counts
    its own. Serve calls this ten times a second, averages the counts over a window, keeps the result
    within the limits, and waits before it acts.
    """
    unfinished = context.aggregated_metrics.get("unfinished", {}).values()
    assert context.config is not None
    return math.ceil(sum(unfinished) / context.config.get_target_ongoing_requests()), {}
