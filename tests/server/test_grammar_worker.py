"""Grammars are tried in a process that can be killed, and no other request waits for them."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.log.vocabulary import RequestArrived
from engine.core.sampling_params import SamplingParams, StructuredOutput
from engine.extensions.grammars.grammar_error import GrammarError
from server.core.bridge import Bridge
from server.core.commands import Prompt
from server.core.grammar_worker import GrammarWorker, GrammarWorkerError, Verdict
from server.core.request_stream import GenerationRequest
from server.http.errors import ApiError
from tests.facts import assert_names
from tests.server.bridges import TOKENIZER, order, read, running

ADA, BO = ("10.0.0.1", "ada"), ("10.0.0.2", "bo")
CHAIN = "start: r0" + "".join(f"\nr{i}: r{i + 1}" for i in range(4500)) + '\nr4500: "a"'


def regex(text: str) -> StructuredOutput:
    return StructuredOutput("regex", text)


@asynccontextmanager
async def worker(**options: float) -> AsyncIterator[GrammarWorker]:
    one = GrammarWorker(ByteTokenizer(), **options)
    yield one
    one.close()


async def test_a_grammar_that_takes_too_long_ends_the_process_and_the_next_one_works():
    async with worker(cpu_seconds=0.01) as one:
        with pytest.raises(GrammarError) as caught:
            await one.check(StructuredOutput("grammar", CHAIN), ADA)
        assert_names(caught.value, "0.01 s", "limit")
        assert one.process is None
    async with worker() as one:
        await one.check(StructuredOutput("grammar", CHAIN), ADA)


async def test_a_grammar_is_tried_again_when_its_process_is_killed():
    async with worker() as one:
        await one.check(regex("a"), ADA)
        first = one.process.pid
        os.kill(first, signal.SIGSTOP)
        waiting = asyncio.create_task(one.check(regex("b"), ADA))
        while one.trying is None:
            await asyncio.sleep(0)
        os.kill(first, signal.SIGKILL)
        await waiting
        assert one.process.pid != first


async def test_a_process_that_ends_again_and_again_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")

    async with worker() as one:
        with pytest.raises(GrammarWorkerError) as caught:
            await one.check(regex("a"), ADA)
        assert_names(caught.value, "exit code 1")


def test_the_process_ends_with_its_parent():
    program = (
        "import asyncio, sys; from tests.server.test_grammar_worker import *\n"
        "async def work():\n"
        "    one = GrammarWorker(ByteTokenizer()); await one.check(regex('a'), ADA)\n"
        "    print('compiled', flush=True); await asyncio.Event().wait()\n"
        "asyncio.run(work())"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None and parent.stderr is not None
        assert parent.stdout.readline() == b"compiled\n"
        parent.kill()
        parent.stderr.read()  # its end comes when both processes have ended


SECONDS = {"slow": 1.0}


class Gated(GrammarWorker):
    """Tries a grammar when the test says so, and notes the order."""

    def __init__(self) -> None:
        super().__init__(ByteTokenizer())
        self.gate = threading.Semaphore(0)
        self.tried: list[str] = []

    def _ask(self, structured: StructuredOutput) -> Verdict:
        self.gate.acquire()
        self.tried.append(structured.text)
        return Verdict("", SECONDS.get(structured.text, 0.01))


async def tried(*jobs: tuple[tuple[str, str], str]) -> list[str]:
    """The order in which the grammars of clients are tried, all of them asked for at once."""
    gated = Gated()
    waiting = [asyncio.create_task(gated.check(regex(text), client)) for client, text in jobs]
    await asyncio.sleep(0)
    gated.gate.release(len(jobs))
    await asyncio.gather(*waiting)
    gated.close()
    return gated.tried


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([(ADA, "a1"), (ADA, "a2"), (ADA, "a3"), (BO, "b1")], ["a1", "b1", "a2", "a3"]),
        (  # two labels of one address share its turns
            [(ADA, "a1"), ((ADA[0], "eve"), "e1"), ((ADA[0], "eve"), "e2"), (BO, "b1"), (BO, "b2")],
            ["a1", "b1", "e1", "b2", "e2"],
        ),
        ([(ADA, "a1"), (ADA, "x"), (BO, "x"), (BO, "b1")], ["a1", "x", "b1"]),
        (  # equal time, not equal numbers
            [(ADA, "slow"), (ADA, "a2"), *((BO, f"b{i}") for i in range(9))],
            ["slow", *(f"b{i}" for i in range(9)), "a2"],
        ),
    ],
    ids=["clients", "labels", "a known grammar", "a slow grammar"],
)
def test_clients_take_turns(jobs, expected):
    assert asyncio.run(tried(*jobs)) == expected


def shaped(text: str, **fields: object) -> GenerationRequest:
    params = SamplingParams(max_tokens=4, structured=regex(text))
    return GenerationRequest(lambda _bridge: [Prompt(TOKENIZER.encode("x"), params)], **fields)


async def answer(bridge: Bridge, request: GenerationRequest) -> dict[int, str]:
    async with bridge.generate(request) as stream:
        return await read(stream)


async def test_a_plain_request_neither_starts_the_process_nor_waits_for_it():
    async with running() as bridge:
        await answer(bridge, order("hello"))
        assert bridge.grammars.process is None
        assert await answer(bridge, shaped("[a-z]{4}")) == {0: "abcd"}
        stopped = bridge.grammars.process.pid
        os.kill(stopped, signal.SIGSTOP)
        slow = asyncio.create_task(answer(bridge, shaped("[a-z]{3,4}")))
        assert await answer(bridge, order("hello", max_tokens=3)) == {0: "abc"}
        assert await answer(bridge, shaped("[a-z]{4}")) == {0: "abcd"}  # a known grammar
        assert not slow.done()
        os.kill(stopped, signal.SIGCONT)
        assert await slow == {0: "abcd"}


async def test_a_client_that_leaves_while_its_grammar_is_tried_frees_its_place():
    async with running(max_waiting=1) as bridge:
        await answer(bridge, shaped("a|b"))
        stopped = bridge.grammars.process.pid
        os.kill(stopped, signal.SIGSTOP)
        leaving = asyncio.create_task(answer(bridge, shaped("[a-z]{4}")))
        while bridge.grammars.trying is None:
            await asyncio.sleep(0)
        with pytest.raises(ApiError) as full:
            await answer(bridge, order("hello"))
        assert full.value.status == 429
        leaving.cancel()
        await asyncio.wait({leaving})
        assert (bridge.pending_submit, bridge.unfinished) == (0, 0)
        assert await answer(bridge, order("hello", max_tokens=3)) == {0: "abc"}
        os.kill(stopped, signal.SIGCONT)
        assert await answer(bridge, shaped("[a-z]{3,4}")) == {0: "abcd"}


async def test_a_client_that_leaves_while_the_engine_compiles_is_not_served(monkeypatch):
    async with running() as bridge:
        engine = bridge.client.engine  # type: ignore[attr-defined]
        validate, began, gate = engine.validate, asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def slow(*arguments: object) -> object:
            loop.call_soon_threadsafe(began.set)
            gate.wait()
            return validate(*arguments)

        monkeypatch.setattr(engine, "validate", slow)
        leaving = asyncio.create_task(answer(bridge, shaped("[a-z]{4}")))
        await began.wait()
        assert await answer(bridge, order("hello", max_tokens=3)) == {0: "abc"}
        leaving.cancel()
        await asyncio.wait({leaving})
        gate.set()
        assert await answer(bridge, shaped("[a-z]{3,4}")) == {0: "abcd"}
        assert len([one for one in bridge.window.trace() if isinstance(one, RequestArrived)]) == 2


async def test_a_grammar_that_only_the_engine_rejects_is_an_error_of_its_request():
    async with running() as bridge:
        bridge.grammars.check = lambda *_: asyncio.sleep(0)  # type: ignore[method-assign]
        with pytest.raises(ApiError) as caught:
            await answer(bridge, shaped("(a"))
        assert (caught.value.status, caught.value.error["param"]) == (400, "structured")
        assert await answer(bridge, order("hello", max_tokens=3)) == {0: "abc"}


async def test_a_stopped_bridge_ends_its_process():
    async with running() as bridge:
        await answer(bridge, shaped("[a-z]{4}"))
        process = bridge.grammars.process
        assert process is not None
    assert process.wait() == -signal.SIGKILL
