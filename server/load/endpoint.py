"""Any OpenAI-compatible server as the target of a sweep: this one, vLLM, SGLang.

    sweep(endpoint("http://localhost:8000"), Load(), slo="ttft<1s, itl<50ms")

Prompts are sent as token ids to /v1/completions, so every server gets prompts of exactly the same
length. `ignore_eos`, a field of vLLM and SGLang, gives the answers their length; `body` removes it for
a server that rejects it. If a server tells the number of tokens so far with each chunk
(`continuous_usage_stats`, of vLLM and of this server), a chunk with three tokens counts as three, 0 ms
apart. Otherwise each chunk with text counts as one.

Each request has a connection of its own, which is opened at the scheduled time. On another machine and
with TLS, the TTFT includes the time to open it.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from engine.simulation.capacity.curve import SweepError
from engine.simulation.capacity.served import Served
from engine.simulation.capacity.simulated import Serve
from engine.simulation.workload import Arrival, Workload
from server.load.client import Call, Reply, ask, begin
from server.load.open_loop import open_loop

TIMEOUT_S = 600.0
VOCABULARY = 2048  # token ids that a model of any size has; invented ids beyond are wrapped
T = TypeVar("T")
FIRST_ID = 97  # below it are ids that are special in some models


def endpoint(
    url: str,
    *,
    model: str | None = None,
    api_key: str | None = None,
    body: Mapping[str, Any] | None = None,
    vocabulary: int = VOCABULARY,
    timeout_s: float = TIMEOUT_S,
    tick: Callable[[int, int], object] = lambda *_: None,
) -> Serve:
    """Return a server as a target for `sweep`.

    model       its name; None: the first of /v1/models
    body        fields to add to each request's body; None as a value removes one
    vocabulary  prompts have token ids below it
    timeout_s   a request fails if it takes longer
    tick        called with the number of requests that have ended, and that of all

    Raises SweepError if no server answers at `url`.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    root = url.rstrip("/").removesuffix("/v1")
    name = model or _in_thread(_first_model(root, headers))
    more = dict(body or {})

    def content(arrival: Arrival) -> dict[str, Any]:
        fields = {
            "model": name,
            "prompt": [
                FIRST_ID + (id_ - FIRST_ID) % (vocabulary - FIRST_ID) for id_ in arrival.prompt
            ],
            "max_tokens": arrival.params.max_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        return {key: value for key, value in (fields | more).items() if value is not None}

    def serve(workload: Workload, rate: float) -> list[Served]:
        arrivals = [one for one in workload.inputs if isinstance(one, Arrival)]
        bodies = [content(one) for one in arrivals]
        return _in_thread(_measured(root, arrivals, bodies, headers, rate, timeout_s, tick))

    return serve


async def _first_model(root: str, headers: dict[str, str]) -> str:
    try:
        reply = await asyncio.wait_for(ask(root, "/v1/models", **headers), 60)
        return str(reply.json()["data"][0]["id"])
    except (OSError, TimeoutError) as error:
        raise SweepError(f"no server answers at {root}: {error}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise SweepError(
            f"{root}/v1/models must list a model, got HTTP {reply.status}: name it with model="
        ) from error


async def _measured(  # noqa: PLR0917
    root: str,
    arrivals: Sequence[Arrival],
    bodies: Sequence[dict[str, Any]],
    headers: dict[str, str],
    rate: float,
    timeout_s: float,
    tick: Callable[[int, int], object],
) -> list[Served]:
    ended = 0

    async def one(index: int) -> Reply:
        nonlocal ended
        call: Call | None = None
        try:
            async with asyncio.timeout(timeout_s):
                call = await begin(root, "/v1/completions", bodies[index], **headers)
                return await asyncio.shield(call.ended)
        except TimeoutError as error:
            raise TimeoutError(f"no complete answer within {timeout_s:g} s") from error
        finally:
            if call is not None:
                call.leave("close")
            ended += 1
            tick(ended, len(arrivals))

    started, replies = await open_loop([one.at_ms / 1000 for one in arrivals], one)
    return [
        _row(reply, arrival, index, started, rate)
        for index, (reply, arrival) in enumerate(zip(replies, arrivals, strict=True))
    ]


def _row(
    reply: Reply | BaseException, arrival: Arrival, index: int, started: float, rate: float
) -> Served:
    """Return what became of a request."""
    known: dict[str, Any] = {
        "rate": rate,
        "request": index,
        "scheduled": arrival.at_ms,
        "prompt_tokens": len(arrival.prompt),
    }
    if isinstance(reply, BaseException):
        error = f"{type(reply).__name__}: {reply}"
        return Served(**known, sent=arrival.at_ms, error=error)

    def ms(at: float) -> float:
        return 1000 * (at - started)

    known["sent"] = ms(reply.began)
    if reply.status != 200:
        return Served(**known, error=f"HTTP {reply.status}: {_message(reply)}")
    try:
        events = reply.events()
        times, error = _tokens(events)
    except (ValueError, LookupError, TypeError, AttributeError) as wrong:
        return Served(**known, error=f"the stream cannot be read: {wrong!r}")
    gaps = [1000 * (later - earlier) for earlier, later in pairwise(times)]
    if not error and (not times or events[-1][1] != "[DONE]"):
        error = "the stream ended before its end"
    return Served(
        **known,
        first=ms(times[0]) if times else None,
        last=ms(times[-1]) if times else None,
        output_tokens=len(times),
        gaps=gaps,
        error=error,
    )


def _tokens(events: Sequence[tuple[float, Any]]) -> tuple[list[float], str]:
    """Return when each token of a stream came, and the error that ended it, or ""."""
    times = list[float]()
    for at, data in events:
        if data == "[DONE]":
            break
        if "error" in data:
            return times, str(data["error"].get("message", data["error"]))
        usage = data.get("usage") or {}
        choices = data.get("choices") or ()
        if "completion_tokens" in usage and choices:
            new = usage["completion_tokens"] - len(times)
        else:
            new = sum(bool(choice.get("text")) for choice in choices)
        times += [at] * new
    return times, ""


def _message(reply: Reply) -> str:
    try:
        answer = reply.json()
        return str(answer.get("error", answer).get("message", answer))
    except (ValueError, AttributeError):
        return "no message"


def _in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own, because a notebook's thread already runs a loop.

    An exception here, such as Ctrl-C, cancels it first.
    """
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    thread = threading.Thread(target=_run, args=(loop, task), daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    return task.result()


def _run(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any]") -> None:
    try:
        loop.run_until_complete(asyncio.wait([task]))
        loop.run_until_complete(asyncio.sleep(0))  # lets the connections close
    finally:
        loop.close()
