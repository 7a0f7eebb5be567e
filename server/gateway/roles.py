"""Prefill here, decode there: some replicas compute prompts, and the others continue them.

    1. a prefill replica computes the prompt, as a request for one token
    2. the gateway copies the prompt's KV blocks from there to a decode replica
    3. the decode replica gets the client's request, unchanged, and finds its prompt cached

The token of step 1 is dropped. The decode replica samples the first token again, because it has to
compute the last prompt token anyway: a hit never covers it. So the whole output comes from one engine,
and seeds, log-probabilities, grammars and stop strings work as without roles.

A move is worth it if it takes less time than computing the prompt on the decode replica, whose streams
would wait (`engine/cluster/transfer.py`). The prices come from the moves and the steps of real requests
(`prices.py`).

Nothing depends on a move. If the prefill replica fails, in step 1 or 2, or has no room, or takes too
long, or the blocks are evicted too soon, the decode replica computes what it lacks. Without a decode
replica, any replica serves the request.

Source: vLLM's disaggregated prefill with a proxy (`examples/disaggregated/`): there, too, the prompt is
first sent with max_tokens=1, and the decode instance gets the original request.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from engine.cluster.events import Hop, Moved
from engine.core.config import ConfigError
from engine.core.log.vocabulary import Event, StepFinished, StepScheduled
from server.gateway.follower import Follower
from server.gateway.prices import Prices
from server.gateway.upstream import LostError, error_message, lost, refused

if TYPE_CHECKING:
    from server.gateway.gateway import Gateway

logger = logging.getLogger("underglass")

PREFILL, DECODE = "prefill", "decode"
_LEAST_TOKENS = 16  # of prompts, in a step that says what a token costs
_PATIENCE = 8  # a hop may take so many times the time that it should take, beside its deadline


class _Adopted(msgspec.Struct):
    blocks: int
    sent: int
    bytes: int


_adopted = msgspec.json.Decoder(_Adopted)


def parse_roles(text: str | None, replicas: int) -> list[str]:
    """Return the role of each replica: prefill, decode, decode for "prefill=1,decode=2"; [] for None.

    Raises ConfigError if the text cannot be read or does not name `replicas` replicas.
    """
    if text is None:
        return []
    counts: dict[str, int] = {}
    for part in text.split(","):
        role, _, number = part.strip().partition("=")
        if role not in (PREFILL, DECODE) or role in counts or not number.isdecimal():
            raise ConfigError(f"roles must look like prefill=1,decode=2, got {text!r}")
        counts[role] = int(number)
    for role in (PREFILL, DECODE):
        if counts.get(role, 0) < 1:
            raise ConfigError(f"roles must have at least one {role} replica, got {text!r}")
    if sum(counts.values()) != replicas:
        raise ConfigError(
            f"roles must name as many replicas as there are, {replicas}, got {text!r}"
        )
    return [role for role in (PREFILL, DECODE) for _ in range(counts[role])]


def role_of_next(roles: Sequence[str], present: Iterable[str]) -> str:
    """Return the role of a new replica: the first one of the list that too few replicas have.

    A replica that takes the place of a removed one thus takes its role. Further replicas get the last
    role of the list.
    """
    missing = Counter(roles) - Counter(present)
    return next((role for role in roles if missing[role]), roles[-1])


class _Pages:
    """The body of /kv/export on its way to /kv/adopt.

    awaited  whether the next bytes must come from the source
    broken   whether the source has failed
    """

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content
        self.awaited = True
        self.broken = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                data = await self._content.readany()
            except aiohttp.ClientError:
                self.broken = True
                raise
            self.awaited = False
            if not data:
                return
            yield data
            self.awaited = True


class KVMover:
    """Computes prompts on prefill replicas and moves their KV. Lives on the event loop."""

    def __init__(self, gateway: "Gateway") -> None:
        self.prices = Prices()
        self._gateway = gateway
        self._scheduled = dict[
            str, int
        ]()  # tokens of a replica's step, if it computes mostly prompts
        self._prefilling = Counter[str]()  # by replica: prompt tokens that it is to compute

    # One request

    async def prefill(
        self,
        number: int,
        tokens: Sequence[int],
        label: str,
        headers: Mapping[str, str],
        fields: Mapping[str, object],
    ) -> Follower | None:
        """Have a prompt computed by a prefill replica; return it.

        headers, fields  of the client's request, for the prefill replica: they name the client, and say
                         how urgent the request is

        Returns None if a decode replica is to compute the prompt: this is cheaper, or no prefill
        replica could do it.
        """
        gateway = self._gateway
        decoding, paused = gateway.ready_in(DECODE), self._paused()
        if not decoding or not set(gateway.ready_in(PREFILL)) - paused:
            return None
        states = [gateway.log.state.states[id_] for id_ in decoding]
        size = states[0].block_size
        here = max(state.cached_prefix(tokens)[1] for state in states) // size
        if not self.prices.is_moved(len(tokens), here, size, gateway.now() / 1e6):
            return None
        source, began = gateway.route(number, tokens, label, paused, role=PREFILL), gateway.now()
        self._prefilling[source.member.id] += len(tokens)
        try:
            expected = self.prices.seconds_of_prompt(self._prefilling[source.member.id])
            within = gateway.deadlines.prefill + _PATIENCE * expected
            its_request = await self._compute(source, tokens, _labels(headers), fields, within)
            gateway.dispatcher.placed(number, its_request, gateway.now())
            gateway.dispatcher.first_token(number, gateway.now())
        except LostError as error:
            self._failed(number, source, "prefill", error, began)
            return None
        finally:
            self._prefilling[source.member.id] -= len(tokens)
            gateway.dispatcher.ended(number, gateway.now())
        return source

    def _paused(self) -> set[str]:
        """Return the paused replicas, or none if all decode replicas are paused, too."""
        gateway = self._gateway
        paused = {id_ for id_ in gateway.ready if gateway.followers[id_].status.get("paused")}
        return paused if set(gateway.ready_in(DECODE)) - paused else set()

    async def move(
        self, number: int, tokens: Sequence[int], source: Follower, target: Follower
    ) -> None:
        """Copy the blocks of a computed prompt that `target` lacks. A failed copy is only logged."""
        gateway, at = self._gateway, self._gateway.now()
        state = gateway.log.state.states.get(target.member.id)
        if state is None or not target.joined:
            return
        size = state.block_size
        here = state.cached_prefix(tokens)[1] // size
        end = (len(tokens) - 1) // size
        if here >= end:
            return
        within = gateway.deadlines.adopt + _PATIENCE * self.prices.seconds_of_move(end - here)
        try:
            copied = await self._copy(tokens[: end * size], here, source, target, within)
        except LostError as error:
            if error.replica is source:
                self._failed(number, source, "export", error, at)
            else:
                self._failed(number, target, "adopt", error, at)
            return
        if copied.blocks:
            moved = (here + copied.sent) * size, copied.blocks, copied.bytes
            t = {"at": at, "us": gateway.now() - at}
            self.prices.moved(copied.sent, t["us"] / 1000)
            gateway.log.append(Moved(number, source.member.id, target.member.id, *moved, t))

    def _failed(
        self, number: int, replica: Follower, hop: Hop, error: LostError, began: int
    ) -> None:
        id_, now = replica.member.id, self._gateway.now()
        self.prices.failed(f"{hop} at replica {id_}: {error}", now / 1e6)
        logger.warning("The prompt of request %s, %s at replica %s: %s", number, hop, id_, error)
        self._gateway.hop_failed(number, id_, hop, error, remedy="here", began=began)

    async def _compute(
        self,
        replica: Follower,
        tokens: Sequence[int],
        headers: Mapping[str, str],
        fields: Mapping[str, object],
        within: float,
    ) -> int:
        """Have a replica compute a prompt; return its number there. Raises LostError."""
        url, session = f"{replica.member.url}/v1/completions", self._gateway.session
        body = {"prompt": list(tokens), "max_tokens": 1, "stream": False, "ignore_eos": True}
        async with (
            lost(replica, within),
            session.post(url, json={**body, **fields}, headers=headers) as response,
        ):
            if response.status != 200:
                raise await refused(response)
            await response.read()
            return int(response.headers["x-underglass-request"])

    async def _copy(
        self,
        tokens: Sequence[int],
        first: int,
        source: Follower,
        target: Follower,
        within: float,
    ) -> _Adopted:
        """Pass the body of /kv/export on to /kv/adopt, without reading it. Raises LostError."""
        session, name = self._gateway.session, {"source": f"replica {source.member.id}"}
        wanted = {"tokens": list(tokens), "first": first}
        export, adopt = f"{source.member.url}/kv/export", f"{target.member.url}/kv/adopt"
        async with (
            lost(source, self._gateway.deadlines.export) as deadline,
            session.post(export, json=wanted) as response,
        ):
            if response.status != 200:
                raise LostError(await error_message(response), "error", source)
            deadline.reschedule(None)
            pages = _Pages(response.content)
            try:
                async with (
                    lost(target, within),
                    session.post(adopt, params=name, data=pages) as answer,
                ):
                    if answer.status != 200:
                        raise LostError(await error_message(answer), "error", target)
                    return _adopted.decode(await answer.read())
            except LostError as error:
                if pages.broken or (pages.awaited and error.noticed == "late"):
                    raise LostError(str(error), error.noticed, source) from error
                raise

    # Prices

    def event(self, replica: str, event: Event) -> None:
        """Learn from a decode replica's event what computing a prompt costs."""
        match event:
            case StepScheduled():
                counts = [row.count for row in event.rows]
                prompts = sum(row.count for row in event.rows if row.count > 1 and not row.drafts)
                is_sample = prompts >= _LEAST_TOKENS and 2 * prompts > sum(counts)
                self._scheduled[replica] = sum(counts) if is_sample else 0
            case StepFinished() if (tokens := self._scheduled.pop(replica, 0)) and event.t:
                self.prices.computed(tokens, (event.t["end"] - event.t["start"]) / 1000)


def _labels(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a client's request that name it, for the prefill replica."""
    return {name: headers[name] for name in ("x-client", "x-request-id") if name in headers}
