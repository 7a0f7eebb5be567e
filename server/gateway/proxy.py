"""One generation request: route it, pass the output on, and continue it elsewhere if its replica fails.

The prompt's token ids come from a replica's `/render` route: the gateway has no model, and only a
replica knows its chat template, its tools' format and its truncation. That is one more round trip per
request, also for routers that do not read the ids: the hit rates in the log need the prompt's length.
The body that the replica then gets is the client's, unchanged.

If a replica fails before the client has a token, another one gets the request. If it fails later, the
other one gets the tokens so far, too, and continues after them (`server/http/continued.py`): the client
sees a pause. If no other replica accepts it, the request waits for one, and its client gets keep-alive
comments. `failures.py` is the whole table. A client that leaves closes the connection to the replica,
too, which aborts the request.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.cluster.events import Remedy
from engine.core.log.fold import State
from engine.extensions.prefix_keys import KeyedTokens, keyed, salt_digest
from server.gateway.attempts import Attempts
from server.gateway.follower import Follower
from server.gateway.gateway import Gateway
from server.gateway.roles import DECODE
from server.gateway.upstream import (
    LostError,
    lost,
    refused,
    request_headers,
    response_headers,
)
from server.http.continued import CONTINUED, MARKS, NAME, split_marks, tokens_of
from server.http.errors import ApiError, unavailable
from server.http.request_log import label_in
from server.http.streaming import KEEP_ALIVE, Connection, sse

_DONE = b"data: [DONE]\n\n"


class _Asked(msgspec.Struct):
    """What the gateway reads of a body; the replica checks it."""

    model: object = None
    stream: object = None
    user: object = None
    safety_identifier: object = None
    priority: object = None
    prompt_logprobs: object = None
    echo: object = None
    logprobs: object = None

    @property
    def is_scored(self) -> bool:
        """Whether the prompt's tokens get log-probabilities."""
        return self.prompt_logprobs is not None or bool(self.echo and self.logprobs is not None)

    @property
    def for_prefill(self) -> dict[str, object]:
        """The fields that the prefill of the prompt elsewhere needs, too."""
        fields = {"user": self.safety_identifier or self.user, "priority": self.priority}
        return {name: value for name, value in fields.items() if value is not None}


class _Rendered(msgspec.Struct):
    token_ids: list[int]
    lora_name: str | None = None
    cache_salt: str | None = None


_asked = msgspec.json.Decoder(_Asked)
_rendered = msgspec.json.Decoder(_Rendered | list[_Rendered])


class RoutedAnswer(Response):
    """The response to a generation request."""

    def __init__(self, gateway: Gateway, request: Request, body: bytes) -> None:
        super().__init__()
        self._gateway = gateway
        self._path = request.url.path
        self._body = body
        self._passed = request_headers(request) | {MARKS: "1"}
        if request.client is not None:  # the replica's request log names the client
            self._passed["x-forwarded-for"] = request.client.host
        self._asked = _read(body)
        self._label = label_in(self._passed.get("x-client", "")) or str(
            self._asked.safety_identifier or self._asked.user or ""
        )
        label = self._label[:100] if gateway.settings.trace_text == "on" else ""
        self._logged = request.scope["state"]["logged"] = {"label": label, "replicas": list[str]()}
        self._started = False  # whether the client has the headers
        self._name = ""  # of the stream
        self._has_ended = False  # whether the client has all of it
        self._marks = bytearray()  # the client's tokens, as the replicas marked them
        self._place: tuple[State | None, int] = None, 0  # its replica's state, and its number there

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; return when the client has received it or has disconnected."""
        self._connection = Connection(receive, send, self._gateway.settings.stall_seconds)
        with self._gateway.running():
            await self._connection.serve(self._serve())

    async def _serve(self) -> None:
        gateway = self._gateway
        gateway.check_accepting()
        number = gateway.next_request()
        self._attempts = Attempts(gateway, number)
        try:
            async with gateway.accepted.block():
                await self._route(number)
        except TimeoutError:
            message = "the server stopped before this request finished"
            await self._fail(unavailable(message, "shutdown"))
        except ApiError as error:
            await self._fail(error)
        finally:
            gateway.dispatcher.ended(number, gateway.now())

    async def _route(self, number: int) -> None:
        gateway, tried = self._gateway, list[str]()
        tokens = await self._tokens(number)
        source: Follower | None = None
        # A prompt with scores is computed anyway, and only keyless KV can be moved.
        if not self._asked.is_scored and not isinstance(tokens, KeyedTokens):
            source = await gateway.mover.prefill(
                number, tokens, self._label, self._passed, self._asked.for_prefill
            )
        while True:
            output = tokens_of(_as_list(self._marks)) if self._marks else []
            follower = gateway.route(
                number,
                _with_output(tokens, output),
                self._label,
                self._attempts.failed_here(),
                role=DECODE,
                output=len(output),
            )
            tried.append(follower.member.id)
            self._logged["replicas"] = tried
            if source is not None and source is not follower:
                await gateway.mover.move(number, tokens, source, follower)
            began, run = gateway.now(), follower.run
            self._place = None, 0
            try:
                await self._pass(number, follower)
                return
            except LostError as error:
                if self._has_ended:  # the client has the whole stream
                    return
                self._attempts.failed(
                    follower,
                    run,
                    error,
                    began,
                    has_token=bool(self._marks),
                    is_computed=self._is_computed,
                )
                await self._attempts.wait(follower, error, self._keep_alive)

    async def _tokens(self, number: int) -> list[int]:
        """Return the ids of the (first) prompt; none if the replica will reject the request."""
        gateway, failed = self._gateway, list[str]()
        while True:
            follower, began = gateway.least_loaded(without=failed), gateway.now()
            failed.append(follower.member.id)
            try:
                async with lost(follower, gateway.deadlines.render):
                    return await self._rendered(follower)
            except LostError as error:
                others = not set(gateway.ready) <= set(failed)
                remedy: Remedy = "elsewhere" if others else "here"
                name = follower.member.id
                gateway.hop_failed(number, name, "render", error, remedy=remedy, began=began)
                if not others:
                    return []

    async def _rendered(self, follower: Follower) -> list[int]:
        async with self._post(f"{follower.member.url}{self._path}/render") as response:
            if response.status >= 500:
                raise await refused(response)
            if response.status != 200:
                return []
            try:
                rendered = _rendered.decode(await response.read())
            except msgspec.DecodeError:
                return []
        first: _Rendered = rendered[0] if isinstance(rendered, list) else rendered
        if first.lora_name or first.cache_salt:
            key = first.lora_name or "", salt_digest(first.cache_salt or "")
            return keyed(first.token_ids, key)
        return first.token_ids

    @property
    def _is_computed(self) -> bool:
        """Whether its last replica's log says that it was being computed, or does not know it."""
        state, request = self._place
        return state is None or request not in state.waiting

    async def _keep_alive(self) -> None:
        if self._started:
            await self._connection.body(KEEP_ALIVE)

    # One attempt

    async def _pass(self, number: int, follower: Follower) -> None:
        """Pass a replica's response on to the client. Raises LostError."""
        gateway, connection = self._gateway, self._connection
        async with (
            lost(follower),
            self._watched(follower),
            self._post(follower.member.url + self._path, self._marks) as response,
        ):
            is_full = response.status == 429 and self._attempts.accepted
            if response.status >= 500 or is_full or (self._started and response.status != 200):
                raise await refused(response)
            if its_request := response.headers.get("x-underglass-request"):
                gateway.dispatcher.placed(number, int(its_request), gateway.now())
                self._place = gateway.log.state.states.get(follower.member.id), int(its_request)
            headers = response_headers(response.headers.items(), follower.member.id)
            if response.content_type == "text/event-stream":
                self._attempts.accepted = True
                self._name = response.headers.get(NAME, "")
                if not self._name:
                    raise LostError("its streams have no marks: it runs another version", "error")
                if not self._started:
                    self._started = True
                    await connection.start(response.status, headers)
                await self._pass_stream(number, response.content)
                return
            body = await response.read()
        # The replica is no longer needed, so its failure must not send the answer again.
        await connection.start(response.status, [*headers, (b"content-length", b"%d" % len(body))])
        self._started = True
        await connection.body(body, more=False)

    async def _pass_stream(self, number: int, content: aiohttp.StreamReader) -> None:
        """Pass each write on when its mark has arrived."""
        loop, gateway, connection = asyncio.get_running_loop(), self._gateway, self._connection
        has_token, rest = False, b""
        while data := await content.readany():
            self._heard_at = loop.time()
            parts, rest = split_marks(rest + data)
            if not parts:
                continue
            for mark in parts[1::2]:
                if mark.startswith(b"t["):
                    if not has_token:
                        gateway.dispatcher.first_token(number, gateway.now())
                        has_token = True
                        self._attempts.token()
                    self._marks += mark[1:]
                    self._token_at = self._heard_at
            last = parts[-1]
            self._has_ended = last == b"e"
            self._heard_at = 0.0  # the client's own slowness does not count
            await connection.body(b"".join(parts[::2]), more=not self._has_ended)
            self._heard_at = loop.time()
            if self._has_ended:
                return
            if last.startswith(b"x"):
                error = msgspec.json.decode(last[1:])["error"]
                raise LostError(error["message"], "error", code=error["code"])
        raise LostError("it closed the connection")

    @asynccontextmanager
    async def _watched(self, follower: Follower) -> AsyncIterator[None]:
        """Run a block that waits for tokens. Raises LostError when they are late."""
        loop, timer = asyncio.get_running_loop(), None
        self._heard_at = self._token_at = loop.time()

        def check() -> None:
            nonlocal timer
            left = self._left(follower)
            if left > 0:
                timer = loop.call_later(left, check)
            else:
                scope.reschedule(0)

        try:
            async with asyncio.timeout(None) as scope:
                check()
                try:
                    yield
                finally:
                    if timer is not None:
                        timer.cancel()
        except TimeoutError:
            if not scope.expired():
                raise
            raise LostError(f"no token within {self._patience:g} s", "late") from None

    @property
    def _patience(self) -> float:
        deadlines = self._gateway.deadlines
        return deadlines.stream if self._marks else deadlines.first_token

    def _left(self, follower: Follower) -> float:
        """Return how many seconds a replica has left; see `Deadlines.first_token`."""
        now, status = asyncio.get_running_loop().time(), follower.status
        if not self._heard_at:
            return self._patience
        since = max(self._token_at, follower.worked_at)
        if status.get("paused") or status.get("holding"):
            since = now
        if self._name:  # at least a keep-alive comment comes in time
            since = min(since, self._heard_at + self._gateway.settings.keep_alive)
        return since + self._patience - now

    def _post(
        self, url: str, marks: bytes | bytearray = b""
    ) -> "aiohttp.client._RequestContextManager":
        headers, body = self._passed, self._body
        if marks:
            output = _as_list(marks)
            headers = headers | {CONTINUED: f"{self._name}-{len(output)}"}
            body += output
        return self._gateway.session.post(url, data=body, headers=headers)

    async def _fail(self, error: ApiError) -> None:
        """Send an error: as a response, or as the last event of a stream that has begun."""
        if not self._started:
            raise error
        last = sse({"error": error.error}) + (_DONE if self._ends_with_done else b"")
        await self._connection.body(last, more=False)

    @property
    def _ends_with_done(self) -> bool:
        """Whether the stream ends with [DONE], unlike the teaching stream and /v1/responses."""
        is_teaching = self._asked.model is None and self._asked.stream is None
        is_completion = self._path == "/v1/completions" and not is_teaching
        return is_completion or self._path == "/v1/chat/completions"


def _read(body: bytes) -> _Asked:
    try:
        return _asked.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return _Asked()


def _as_list(marks: bytes | bytearray) -> bytes:
    """Return the marks as a JSON list; each ends with a comma."""
    return b"[%s]" % marks[:-1]


def _with_output(tokens: list[int], output: list[int]) -> Sequence[int]:
    """Return a prompt and its output, with the prompt's key."""
    if isinstance(tokens, KeyedTokens):
        return keyed([*tokens, *output], tokens.extra_key)
    return [*tokens, *output] if output else tokens
