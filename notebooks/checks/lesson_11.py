"""Lesson 11: what waits for one reader, bounded, so that nobody else waits for that reader."""

import asyncio
import random
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from inspect import isawaitable
from itertools import product
from typing import Any

from checks.broken import Broken
from checks.guard import watched
from checks.judging import counted, judge

# Turns of the event loop in which a reader that was woken has long had its text.
TURNS = 20
# For a get() that does not wait to be woken, but sleeps and looks again. A reader that sleeps through
# this is one that would sleep on.
POLL_SECONDS = 2.0
# For a put() that blocks the whole thread; whatever is right takes a thousandth of it.
PATIENCE_SECONDS = 20.0


class PlainOutbox:
    """The lesson's own: its queue with no limit, a count of the bytes in it, and the end as a piece."""

    def __init__(self, limit: int) -> None:
        self._room = limit
        self._pieces: asyncio.Queue[tuple[str, str | None]] = asyncio.Queue()
        self._closed = False

    def put(self, text: str) -> bool:
        """Take a piece if there is room for its bytes."""
        size = len(text.encode())
        if size > self._room:
            return False
        self._room -= size
        self._pieces.put_nowait((text, None))
        return True

    def close(self, reason: str) -> None:
        """The last piece is the reason."""
        if not self._closed:
            self._closed = True
            self._pieces.put_nowait(("", reason))

    async def get(self) -> tuple[str, str | None]:
        """The next piece."""
        text, reason = await self._pieces.get()
        self._room += len(text.encode())
        return text, reason


@dataclass(frozen=True)
class Story:
    """What happens to one outbox: "put" with a text, "get", "close" with a reason, in this order.

    When it is over the outbox is closed, if it is not yet, and read to its end. A put() that says no
    is followed by close("slow_reader"), as in the lesson, and by no further put().
    """

    limit: int
    acts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        told = [f"{name}({word!r})" if word else f"{name}()" for name, word in self.acts]
        if all(name != "close" for name, _ in self.acts):
            told.append("at the end close('stop')")
        return f"An outbox of {counted(self.limit, 'byte')}: {', '.join(told)}."


def check(outbox: type) -> type:
    """Say how the class `outbox` does, and give it back; the lesson's own while it fails."""
    verdict = judge(outbox, cases(), attempt)
    print(verdict)
    return outbox if verdict.passed else PlainOutbox


def cases() -> list[Story]:
    """Every short story in two sizes of outbox, and some longer ones; the shortest first."""
    acts = [("put", "He"), ("put", "llo"), ("put", "é"), ("get", ""), ("close", "stop")]
    short = [story for length in range(1, 5) for story in product(acts, repeat=length)]
    chance = random.Random(11)
    weights = [3, 3, 2, 4, 0.3]
    long = [tuple(chance.choices(acts, weights, k=chance.randint(6, 12))) for _ in range(150)]
    stories = [Story(limit, told) for told in short for limit in (8, 3)]
    stories += [Story(chance.choice((4, 7, 64)), told) for told in long]
    return sorted(filter(_is_told_in_order, stories), key=_size)


def _is_told_in_order(story: Story) -> bool:
    """Nothing is put after the end, and at most one further close() follows it."""
    names = [name for name, _ in story.acts]
    end = names.index("close") if "close" in names else len(names)
    return "put" not in names[end:] and names.count("close") <= 2 and "get" not in names[end + 1 :]


def _size(story: Story) -> tuple[int, ...]:
    words = "".join(word for _, word in story.acts)
    return (len(story.acts), words.count("é"), len(words), -story.limit)


def attempt(outbox: type, story: Story) -> None:
    """Play a story on a loop and a thread of its own: a notebook's loop is running already."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with watched(outbox):
                asyncio.run(_play(outbox, story))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    if thread.is_alive():
        raise Broken(
            "Everything stood still: a method kept the whole thread waiting.", *_NEVER_WAITS
        )
    if failed:
        raise failed[0]


_NEVER_WAITS = (
    "put() and close() never wait",
    "One loop feeds thirty outboxes. While it waits for one reader, 29 readers wait with it.",
)


async def _play(outbox: type, story: Story) -> None:
    await _Play(outbox, story.limit).act(story.acts)


class _Play:
    """One outbox, its reader, and what ought to be in between."""

    def __init__(self, outbox: type, limit: int) -> None:
        self._limit = limit
        self._other = outbox(limit)
        self._box = outbox(limit)
        self._sent = self._received = ""
        self._reason: str | None = None
        self._refused = self._ended = False
        self._reading: asyncio.Task[Any] | None = None

    async def act(self, acts: Iterable[tuple[str, str]]) -> None:
        """The whole story, its end, and a look at the outbox next door."""
        for name, word in acts:
            if name == "put" and not self._refused:
                self._put(word)
            elif name == "close":
                self._close(word)
            elif name == "get" and self._reading is None and not self._ended:
                self._reading = self._read()
            await self._let_the_reader_run()
        if self._reason is None:
            self._close("stop")
        while not self._ended:
            if self._reading is None:
                self._reading = self._read()
            await self._let_the_reader_run()
        if self._sent:
            await self._look_next_door()

    def _read(self) -> asyncio.Task[Any]:
        reading = self._box.get()
        if not isawaitable(reading):
            raise Broken(
                f"get() gave {reading!r} at once.",
                "get() may wait",
                "The reader says `await outbox.get()`. What does the stub have before `def`?",
            )
        return asyncio.ensure_future(reading)

    def _put(self, text: str) -> None:
        fits = len((self._waiting + text).encode()) <= self._limit
        answer = self._box.put(text)
        _at_once(answer, "put")
        held = counted(len(self._waiting.encode()), "byte")
        about = f"{held} waited, the limit is {self._limit}, and {text!r} has {len(text.encode())}."
        if answer not in (True, False):
            raise Broken(
                f"put({text!r}) gave {answer!r}.",
                "put() says True, or False when the text does not fit",
                "What does every way through put() return?",
            )
        if answer and not fits:
            raise Broken(f"put({text!r}) said True.", "no more waits than the limit", about)
        if fits and not answer:
            raise Broken(f"put({text!r}) said False.", "what fits is taken", about)
        if answer:
            self._sent += text
        else:
            self._refused = True
            self._close("slow_reader")

    def _close(self, reason: str) -> None:
        _at_once(self._box.close(reason), "close")
        self._reason = self._reason or reason

    async def _let_the_reader_run(self) -> None:
        due = bool(self._waiting) or self._reason is not None
        for _ in range(TURNS):
            if self._reading is None or self._reading.done():
                break
            await asyncio.sleep(0)
        if self._reading is None:
            return
        if due:
            await asyncio.wait({self._reading}, timeout=POLL_SECONDS)
        if self._reading.done():
            answer, self._reading = self._reading.result(), None
            self._take(answer)
        elif due:
            there = f"{self._waiting!r} was there" if self._waiting else "the end had come"
            self._reading.cancel()
            raise Broken(
                f"The reader slept although {there}.",
                "get() returns as soon as there is something to say",
                "Who wakes a reader who is waiting already? And one who comes later?",
            )

    @property
    def _waiting(self) -> str:
        return self._sent[len(self._received) :]

    def _take(self, answer: Any) -> None:
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[0], str):
            raise Broken(
                f"get() gave {answer!r}.",
                "get() gives a text and a reason, None while more may come",
                "What does get() return?",
            )
        text, reason = answer
        received = self._received + text
        if not self._sent.startswith(received):
            raise Broken(
                f"The reader received {received!r}, and {self._sent!r} was sent.",
                "what is received, joined, is what was sent",
                "Follow each piece of text from put() to get().",
            )
        if reason is None and not text:
            raise Broken(
                "get() came back with nothing.",
                "get() waits until there is something to say",
                "A reader who is handed nothing asks again at once, and again.",
            )
        self._received = received
        if reason is not None:
            self._take_end(reason)

    def _take_end(self, reason: Any) -> None:
        if reason != self._reason:
            told = f"close({self._reason!r}) came first" if self._reason else "nobody closed it"
            raise Broken(
                f"The reader was told {reason!r}.",
                "the reason is the one that the first close() gave",
                f"Here {told}.",
            )
        if self._waiting and not self._refused:
            raise Broken(
                f"The reader was told {reason!r} while {self._waiting!r} still waited.",
                "the reason comes last",
                "After a reason the reader goes home.",
            )
        self._ended = True

    async def _look_next_door(self) -> None:
        """Another outbox of the same class, which nobody has touched, holds its own and no more."""
        self._other.put("x")
        self._other.close("stop")
        text, _ = await self._other.get()
        if text != "x":
            raise Broken(
                f"A second outbox was given 'x' and nothing else. Its reader got {text!r}.",
                "every reader has an outbox of its own",
                "Where is what waits kept: with the outbox, or with the class?",
            )


def _at_once(answer: Any, method: str) -> None:
    if isawaitable(answer):
        if hasattr(answer, "close"):
            answer.close()  # or Python warns that it was never awaited
        raise Broken(
            f"{method}() gave a coroutine, so whoever calls it has to wait.", *_NEVER_WAITS
        )
