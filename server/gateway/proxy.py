"""One generation request: route it, pass the output on, and route it again if its replica fails.

The prompt's token ids come from a replica's `/render` route: the gateway has no model, and only a
replica knows its chat template, its tools' format and its truncation. That is one more round trip per
request, also for routers that do not read the ids: the hit rates in the log need the prompt's length.
The body that the replica then gets is the client's, unchanged.

If a replica fails before the client has received any output, the request goes to another one, once.
If it fails later, the stream ends with an error whose code is `replica_lost`, because another replica
might continue differently. A client that leaves closes the connection to the replica, too, which aborts
the request.
"""

import aiohttp
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.extensions.prefix_keys import KeyedTokens, keyed, salt_digest
from server.gateway.follower import Follower
from server.gateway.gateway import Gateway
from server.gateway.roles import DECODE
from server.gateway.upstream import (
    LostError,
    error_message,
    lost,
    request_headers,
    response_headers,
)
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
        self._passed = request_headers(request)
        if request.client is not None:  # the replica's request log names the client
            self._passed["x-forwarded-for"] = request.client.host
        self._asked = _read(body)
        self._label = label_in(self._passed.get("x-client", "")) or str(
            self._asked.safety_identifier or self._asked.user or ""
        )
        label = self._label[:100] if gateway.settings.trace_text == "on" else ""
        self._logged = request.scope["state"]["logged"] = {"label": label, "replicas": list[str]()}
        self._started = False  # whether the client has the headers
        self._has_output = False

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; return when the client has received it or has disconnected."""
        self._connection = Connection(receive, send, self._gateway.settings.stall_seconds)
        with self._gateway.running():
            await self._connection.serve(self._serve())

    async def _serve(self) -> None:
        gateway = self._gateway
        gateway.check_accepting()
        number = gateway.next_request()
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
        tokens = await self._tokens()
        source: Follower | None = None
        # A prompt with scores is computed anyway, and only keyless KV can be moved.
        if not self._asked.is_scored and not isinstance(tokens, KeyedTokens):
            source = await gateway.mover.prefill(
                number, tokens, self._label, self._passed, self._asked.for_prefill
            )
        while True:
            follower = gateway.route(number, tokens, self._label, tried, role=DECODE)
            tried.append(follower.member.id)
            self._logged["replicas"] = tried
            if source is not None and source is not follower:
                await gateway.mover.move(number, tokens, source, follower)
            try:
                await self._pass(number, follower)
                return
            except LostError as error:
                others = not set(gateway.ready) <= set(tried)
                if not gateway.dispatcher.lost(number, gateway.now(), again=others):
                    message = (
                        f"replica {follower.member.id} was lost: {error}; send the request again"
                    )
                    raise unavailable(message, "replica_lost") from error

    async def _tokens(self) -> list[int]:
        """Return the ids of the (first) prompt; none if the replica will reject the request."""
        follower = self._gateway.least_loaded()
        url = f"{follower.member.url}{self._path}/render"
        try:
            async with lost(follower), self._post(url) as response:
                if response.status != 200:
                    return []
                rendered = _rendered.decode(await response.read())
        except (LostError, msgspec.DecodeError):
            return []
        first: _Rendered = rendered[0] if isinstance(rendered, list) else rendered
        if first.lora_name or first.cache_salt:
            key = first.lora_name or "", salt_digest(first.cache_salt or "")
            return keyed(first.token_ids, key)
        return first.token_ids

    async def _pass(self, number: int, follower: Follower) -> None:
        """Pass a replica's response on to the client. Raises LostError."""
        gateway, connection = self._gateway, self._connection
        async with lost(follower), self._post(follower.member.url + self._path) as response:
            if response.status == 503 and len(gateway.ready) > 1 and not self._has_output:
                raise LostError("it accepts no requests")
            if its_request := response.headers.get("x-underglass-request"):
                gateway.dispatcher.placed(number, int(its_request), gateway.now())
            headers = response_headers(response.headers.items(), follower.member.id)
            if response.content_type != "text/event-stream":
                if self._started:  # the first replica began a stream, and this one rejects it
                    raise unavailable(await error_message(response), "replica_lost")
                body = await response.read()
                await connection.start(
                    response.status, [*headers, (b"content-length", b"%d" % len(body))]
                )
                self._started = True
                await connection.body(body, more=False)
                return
            if not self._started:
                await connection.start(response.status, headers)
                self._started = True
            while data := await response.content.readany():
                if not self._has_output and data.replace(KEEP_ALIVE, b""):
                    self._has_output = True
                    gateway.dispatcher.first_token(number, gateway.now())
                await connection.body(data)
            await connection.body(b"", more=False)

    def _post(self, url: str) -> "aiohttp.client._RequestContextManager":
        return self._gateway.session.post(url, data=self._body, headers=self._passed)

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
