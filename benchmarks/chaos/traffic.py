"""The requests of a chaos run, and what their clients saw.

The bodies cover each route of the gateway and LMTP, streams and whole answers, greedy and seeded
sampling, several choices, stop strings and a schema. They are few, so that prompts share prefixes and
so that a server without faults can answer each of them once, which says what every later answer has to
be.
"""

import asyncio
import json
import random
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from websockets.exceptions import InvalidStatus

from server.api.lmtp.client import StreamError, connect
from server.load.client import Call, Reply, ask, begin
from server.load.open_loop import open_loop

# A client's patience, in seconds. A request that has not ended by then hangs.
PATIENCE = 150.0

_SYSTEM = (
    "Once upon a time there was a small house behind a high hill, and in the house lived an old woman "
    "with a cat, a dog and a very small mouse that nobody had ever seen. ",
    "Far away, where the river meets the sea, a fisherman had three sons. The first one was strong, "
    "the second one was clever, and the third one could talk to the birds. ",
    "This is a list of things that a young fox must never do: sleep under a tree, talk to a bear, "
    "eat a red berry, and follow a light into the dark wood. ",
)
_OPENINGS = (
    "One day",
    "Then",
    "In the morning",
    "The king said",
    "But the cat",
    "It was cold, and",
)
_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer"},
        "likes": {"type": "array", "items": {"enum": ["milk", "fish", "bread"]}, "maxItems": 4},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}


_ENDS = ("response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True, slots=True)
class Question:
    """A request: the route, the body, and `api`, which says how to send it and to read the answer."""

    api: str
    path: str
    content: str

    @property
    def body(self) -> dict[str, Any]:
        """The body as an object."""
        return dict(json.loads(self.content))

    @property
    def label(self) -> str:
        """A name that other questions do not have."""
        return f"question-{zlib.crc32(self.content.encode())}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer: the text of each choice and why it ended."""

    texts: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(slots=True)
class Outcome:
    """What a client saw of its request. Times are seconds since the run began.

    kind     "complete", "refused" (429 or 503 with Retry-After, or an LMTP error with `retry`), "error"
             (an error answer or event), "cut" (the connection ended early, or there was none) or "hung"
    ends     how often the answer said that it was complete
    pieces   the pieces of output that a stream had
    silence  the longest time without output, from the request's start, in seconds
    """

    label: str
    question: Question
    began: float
    ended: float = 0.0
    kind: str = "cut"
    status: int = 0
    error: str = ""
    ends: int = 0
    pieces: int = 0
    silence: float = 0.0
    answer: Answer | None = None
    raw: bytes = field(default=b"", repr=False)


def questions(
    count: int, dice: random.Random, tokens: int, *, repeats: int = 3, shared: bool = True
) -> list[Question]:
    """Draw different questions; answers have up to `tokens` tokens.

    repeats  how often a text of about 45 tokens is repeated in a prompt, at most
    shared   whether prompts have common prefixes
    """
    return [_question(number, dice, tokens, repeats, shared) for number in range(count)]


def _question(
    number: int, dice: random.Random, tokens: int, repeats: int, shared: bool
) -> Question:
    prompt = dice.choice(_SYSTEM) * dice.randint((repeats + 2) // 3, repeats)
    prompt = ("" if shared else f"{number}. ") + prompt + f"{dice.choice(_OPENINGS)} {number}"
    limit = dice.randint(tokens // 4, tokens)
    sampling: dict[str, Any] = {"temperature": 0}
    if dice.random() < 0.5:
        sampling = {"temperature": 1.0, "seed": number}
    streams = dice.random() < 0.8
    api = dice.choice(("teaching", "completion", "chat", "response", "lmtp"))
    messages = [{"role": "user", "content": prompt}]
    if api == "teaching":
        body = {"prompt": prompt, "max_tokens": limit, "ignore_eos": True}
        return _asked(api, "/v1/completions", body | sampling)
    if api == "lmtp":
        body = {"prompt": prompt, "max_tokens": limit, "ignore_eos": True}
        kept = {"keep": "story"} if dice.random() < 0.3 else {}
        return _asked(api, "/lmtp", body | sampling | kept)
    if api == "response":
        # This API has no seed.
        body = {"input": prompt, "max_output_tokens": limit, "temperature": 0, "stream": streams}
        return _asked(api, "/v1/responses", body)
    more: dict[str, Any] = dice.choice(
        ({}, {"n": 2}, {"stop": ["king", "mouse"]}, {"ignore_eos": True})
    )
    if api == "chat":
        if dice.random() < 0.3:
            format_ = {"type": "json_schema", "json_schema": {"name": "animal", "schema": _SCHEMA}}
            more = {"response_format": format_}
        body = {"messages": messages, "max_tokens": limit, "stream": streams}
        return _asked(api, "/v1/chat/completions", body | sampling | more)
    body = {"model": "bundled", "prompt": prompt, "max_tokens": limit, "stream": streams}
    return _asked(api, "/v1/completions", body | sampling | more)


def _asked(api: str, path: str, body: dict[str, Any]) -> Question:
    return Question(api, path, json.dumps(body))


async def expected(url: str, pool: Sequence[Question]) -> dict[Question, Answer]:
    """Return a server's answers to all questions, which it labels by their contents.

    Raises RuntimeError if one is not complete.
    """

    async def answered(question: Question) -> Outcome:
        if question.api == "lmtp":
            return await _over_lmtp(url, question.label, question, 0.0)
        reply = await ask(url, question.path, question.body, X_Client=question.label)
        return seen("", question, reply, 0.0)

    answers = {}
    outcomes = await asyncio.gather(*map(answered, pool))
    for question, outcome in zip(pool, outcomes, strict=True):
        if outcome.answer is None:
            raise RuntimeError(f"{question} was not answered: {outcome}")
        answers[question] = outcome.answer
    return answers


async def send(
    url: str,
    times: Sequence[float],
    asked: Sequence[Question],
    began: float,
    *,
    patience: float = PATIENCE,
) -> list[Outcome]:
    """Ask question i at `times[i]` seconds; return what each client saw. The run began at `began`."""

    async def one(index: int) -> Outcome:
        label, question, at = f"client-{index}", asked[index], time.perf_counter()
        call: Call | None = None
        try:
            async with asyncio.timeout(patience):
                if question.api == "lmtp":
                    return await _over_lmtp(url, label, question, began)
                call = await begin(url, question.path, question.body, X_Client=label)
                outcome = seen(label, question, await asyncio.shield(call.ended), began)
        except TimeoutError:
            reply = call.reply if call is not None else Reply(at)
            outcome = seen(label, question, reply, began)
            outcome.kind = "hung"
        except OSError as error:
            outcome = Outcome(label, question, at - began, error=str(error))
        finally:
            if call is not None:
                call.leave("close")
        outcome.ended = time.perf_counter() - began
        return outcome

    _, outcomes = await open_loop(times, one)
    return [outcome for outcome in outcomes if isinstance(outcome, Outcome)]


async def _over_lmtp(url: str, label: str, question: Question, run_began: float) -> Outcome:
    """Ask on a connection of its own. It is cut off if it ends without an answer or an error."""
    now = time.perf_counter
    times, text = [now()], ""
    outcome = Outcome(label, question, times[0] - run_began)
    try:
        async with connect(url + question.path, label=label) as client:
            async for token in client.generate(**question.body):
                text += token["text"]
                times.append(now())
                outcome.pieces += 1
        reason = token["finish_reason"]
        outcome.kind, outcome.ends = "complete", 1
        outcome.answer = Answer((text,), (reason,))
    except StreamError as error:
        outcome.error = error.code
        if error.code != "connection_lost":
            outcome.kind = "refused" if error.retry else "error"
    except InvalidStatus as refusal:
        outcome.status = refusal.response.status_code
        limited = outcome.status in (429, 503) and "retry-after" in refusal.response.headers
        outcome.kind, outcome.error = "refused" if limited else "error", f"HTTP {outcome.status}"
    times.append(now())
    outcome.silence = max(later - earlier for earlier, later in pairwise(times))
    outcome.ended = times[-1] - run_began
    return outcome


def seen(label: str, question: Question, reply: Reply, run_began: float) -> Outcome:
    """Return what a reply says. `run_began` is on the clock of `reply`."""
    outcome = Outcome(label, question, reply.began - run_began, status=reply.status, raw=reply.raw)
    if reply.status != 200:
        outcome.error = reply.error or f"HTTP {reply.status}"
        if reply.status:
            limited = reply.status in (429, 503) and reply.header("retry-after")
            outcome.kind = "refused" if limited else "error"
        return outcome
    try:
        if reply.header("content-type").startswith("text/event-stream"):
            _read_stream(outcome, reply)
        else:
            _read_whole(outcome, reply)
    except (ValueError, LookupError, TypeError) as error:
        outcome.error = f"the answer cannot be read: {error!r}"
    if outcome.kind == "cut" and outcome.ends and not outcome.error:
        outcome.kind = "complete"
    return outcome


def _read_whole(outcome: Outcome, reply: Reply) -> None:
    if not reply.body:
        return
    data = reply.json()
    if outcome.question.api == "response":
        texts = [part["text"] for item in data["output"] for part in item["content"]]
        reasons = [data["status"]]
    else:
        texts = [
            one["text"] if "text" in one else one["message"]["content"] for one in data["choices"]
        ]
        reasons = [one["finish_reason"] for one in data["choices"]]
    outcome.answer, outcome.ends = Answer(tuple(texts), tuple(reasons)), 1


def _read_stream(outcome: Outcome, reply: Reply) -> None:
    """Read a stream that may have ended anywhere."""
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    times, api = [reply.began], outcome.question.api
    repeated = ""  # the text that the last event repeats
    for at, data in reply.events():
        if _is_end(api, data):
            outcome.ends += 1
        elif outcome.ends:
            outcome.error = f"an event follows the end: {str(data)[:100]}"
        if data == "[DONE]":
            continue
        if data.get("error"):
            outcome.kind, outcome.error = "error", str(data["error"].get("code"))
            continue
        for index, text, reason in _pieces(api, data):
            if text:
                texts[index] = texts.get(index, "") + text
                times.append(at)
            if reason and index in reasons:
                outcome.error = f"choice {index} ended twice"
            if reason:
                reasons[index] = reason
        repeated = data.get("full_text") or data.get("text") or repeated
    outcome.pieces = len(times) - 1
    times.append(reply.pieces[-1][0])
    outcome.silence = max((later - earlier for earlier, later in pairwise(times)), default=0.0)
    if outcome.ends and repeated and repeated != texts.get(0, ""):
        outcome.error = "the last event repeats another text than the stream had"
    if outcome.ends and outcome.kind != "error":
        choices = sorted(reasons.keys() | texts.keys())
        outcome.answer = Answer(
            tuple(texts.get(one, "") for one in choices),
            tuple(reasons.get(one, "") for one in choices),
        )


def _is_end(api: str, data: Any) -> bool:
    """Whether an event says that the answer is complete."""
    if api in ("completion", "chat"):
        return bool(data == "[DONE]")
    return bool(data.get("done") or data.get("type") in _ENDS)


def _pieces(api: str, data: dict[str, Any]) -> list[tuple[int, str, str | None]]:
    """Return (choice, text, finish reason) of each part of an event."""
    if api == "teaching":
        return [(0, data.get("token", ""), data.get("finish_reason"))]
    if api == "response":
        ended = data["response"]["status"] if data["type"] in _ENDS else None
        return [(0, data.get("delta", ""), ended)]
    return [
        (
            one["index"],
            one["text"] if "text" in one else one["delta"].get("content") or "",
            one["finish_reason"],
        )
        for one in data.get("choices", ())
    ]
